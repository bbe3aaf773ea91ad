#include "comm/layout/survey_layouts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <stdexcept>

#include "comm/layout/placement.h"

namespace nearmetal {
namespace {

using testing::ElementsAre;

std::vector<Host> hosts_of(const std::vector<int64_t>& gpus) {
  std::vector<Host> hosts(gpus.size());
  for (size_t i = 0; i < gpus.size(); ++i) {
    hosts[i].name = "node" + std::to_string(i);
    hosts[i].gpus = gpus[i];
  }
  return hosts;
}

std::vector<std::string> names_of(const std::vector<Layout>& layouts) {
  std::vector<std::string> names;
  for (const Layout& layout : layouts) names.push_back(layout.name);
  return names;
}

TEST(SurveyLayouts, RoundsHaveEachPairOnceAndEachPlayerAtMostOnce) {
  for (size_t players = 0; players < 33; ++players) {
    std::set<std::pair<size_t, size_t>> met;
    size_t pairs = 0;
    for (size_t round = 0; round < rounds_of(players); ++round) {
      std::set<size_t> playing;
      for (const auto& pair : pairs_of_round(players, round)) {
        EXPECT_LT(pair.first, pair.second);
        EXPECT_LT(pair.second, players);
        EXPECT_TRUE(playing.insert(pair.first).second && playing.insert(pair.second).second);
        met.insert(pair);
        ++pairs;
      }
      EXPECT_EQ(playing.size(), players / 2 * 2) << "nobody waits who need not";
    }
    EXPECT_EQ(pairs, players * (players - (players > 0)) / 2);
    EXPECT_EQ(met.size(), pairs);
  }
}

TEST(SurveyLayouts, RoundsBetweenHostsGrowWithTheLogarithm) {
  const std::vector<std::pair<size_t, size_t>> expected = {{1, 0}, {2, 1}, {3, 3},  {4, 3},
                                                           {8, 3}, {9, 4}, {64, 6}, {1024, 10}};
  for (const auto& [hosts, rounds] : expected) EXPECT_EQ(rounds_of_hosts(hosts), rounds) << hosts;
}

TEST(SurveyLayouts, OneHostOfFourHasAllOfItsPairs) {
  const std::vector<Host> hosts = hosts_of({4});
  const std::vector<Layout> layouts =
      survey_layouts(surveyed_instances({}, hosts), SurveyedBits::own);
  EXPECT_THAT(names_of(layouts), ElementsAre("each", "pairs-1", "pairs-2", "pairs-3", "all"));
  EXPECT_EQ(layouts[0].workload.texts.at("update"), "independent");
  for (const Layout& layout : layouts) EXPECT_EQ(place(layout, hosts).ranks(), 4) << layout.name;
  EXPECT_EQ(layouts[1].jobs.size(), 2);
}

TEST(SurveyLayouts, HostsOfUnlikeSizesMeetWithAsManyGpusAsTheSmallerHas) {
  const std::vector<Host> hosts = hosts_of({8, 8, 4});
  const std::vector<Layout> layouts =
      survey_layouts(surveyed_instances({}, hosts), SurveyedBits::own);
  EXPECT_THAT(names_of(layouts),
              ElementsAre("each", "pairs-1", "pairs-2", "pairs-3", "pairs-4", "pairs-5", "pairs-6",
                          "pairs-7", "hosts-1", "hosts-2", "hosts-3", "all"));
  std::set<size_t> jobs;
  for (size_t i = 8; i < 11; ++i) jobs.insert(layouts[i].jobs.size());
  EXPECT_THAT(jobs, ElementsAre(4, 8)) << "of each pair of hosts, one after another";
  EXPECT_EQ(place(layouts[1], hosts).ranks(), 20);
  EXPECT_EQ(place(layouts[4], hosts).ranks(), 16) << "four GPUs have met after three rounds";
}

TEST(SurveyLayouts, TwoGpusMeetOnceAndOtherNetworksTellOfTheirBits) {
  const std::vector<Layout> layouts =
      survey_layouts(surveyed_instances({}, hosts_of({2})), SurveyedBits::more);
  EXPECT_THAT(names_of(layouts),
              ElementsAre("each", "pairs-1", "bits-resnet50-tf32", "bits-resnet50-bf16",
                          "bits-resnet50-fp16", "bits-bert_base-tf32", "bits-bert_base-bf16",
                          "bits-bert_base-fp16"));
  for (size_t i : {0, 2}) EXPECT_EQ(layouts[i].workload.texts.at("digest"), "true");
  const Layout alone = survey_layouts(surveyed_instances({}, hosts_of({2})), SurveyedBits::none)[0];
  EXPECT_FALSE(alone.workload.texts.contains("digest"));
}

TEST(SurveyLayouts, CpusOfHostsMeetByARankOfEach) {
  const std::vector<Host> hosts = hosts_of({0, 0});
  const std::vector<Layout> layouts =
      survey_layouts(surveyed_instances({}, hosts), SurveyedBits::more);
  EXPECT_THAT(names_of(layouts), ElementsAre("each", "hosts-1")) << "the two are all";
  EXPECT_EQ(place(layouts[1], hosts).ranks(), 2);
}

TEST(SurveyLayouts, ALayoutSaysWhichGpusAreSurveyed) {
  const std::vector<Host> hosts = hosts_of({8});
  Layout layout;
  layout.name = layout.source = "1x1x2";
  layout.shape = "2*(1x1x2)";
  const std::vector<Instance> instances = surveyed_instances({layout}, hosts);
  ASSERT_EQ(instances.size(), 1);
  EXPECT_THAT(instances[0].gpus, ElementsAre(0, 1, 2, 3));
  EXPECT_THROW(surveyed_instances({layout, layout}, hosts), std::invalid_argument);
  layout.shape = "1x1x1";
  EXPECT_THROW(surveyed_instances({layout}, hosts), std::invalid_argument) << "nobody to compare";
  layout.shape = "1x2x2";
  layout.emulate = true;
  EXPECT_THROW(surveyed_instances({layout}, hosts), std::invalid_argument);
}

}  // namespace
}  // namespace nearmetal
