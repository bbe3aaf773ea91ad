#include "reports/compare/same_bits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "base/errors.h"
#include "reports/compare/compare.h"
#include "reports/document/metric.h"
#include "reports/formats/comparison_json.h"
#include "reports/formats/comparison_text.h"
#include "reports/formats/headline.h"
#include "reports/json/consistency.h"
#include "reports/merge/merge.h"
#include "tests/support/made_up_runs.h"

namespace nearmetal {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

using Groups = std::vector<DigestGroup>;
using Models = std::map<int64_t, std::string>;

const std::string hash_a(16, 'a'), hash_b(16, 'b'), hash_c(16, 'c');

// Of two parameters and steps; from step 2 on the second parameter has this hash.
DigestGroup digest(std::vector<int64_t> ranks, const std::string& second = hash_a,
                   const std::string& loss = "0x1p+1") {
  return {.ranks = std::move(ranks),
          .kernels = std::string(64, '1'),
          .parameters = {"z.weight", "a.bias"},
          .steps = {{1, "0x1p+2", {hash_a, hash_a}}, {2, loss, {hash_a, second}}}};
}

Models all_of(int64_t ranks, const std::string& model = "H200, 132 multiprocessors") {
  Models models;
  for (int64_t rank = 0; rank < ranks; ++rank) models[rank] = model;
  return models;
}

std::vector<WrongBits> wrong_of(const Groups& groups, const Models& models) {
  return wrong_bits(std::array{groups}, models);
}
std::vector<int64_t> ranks_of(const std::vector<WrongBits>& wrong) {
  return transformed(wrong, &WrongBits::rank);
}

TEST(WrongBits, TheMinorityIsWrong) {
  EXPECT_TRUE(wrong_of({digest({0, 1, 2})}, all_of(3)).empty());
  const auto wrong = wrong_of({digest({0, 1, 3}), digest({2}, hash_b)}, all_of(4));
  ASSERT_EQ(ranks_of(wrong), std::vector<int64_t>{2});
  EXPECT_EQ(wrong[0].step, 2);
  EXPECT_EQ(wrong[0].what, "a.bias");
  EXPECT_TRUE(wrong[0].certain);
  EXPECT_EQ(wrong[0].runs, 1);
  EXPECT_EQ(wrong[0].permanent, std::nullopt) << "one run does not tell";
}

TEST(WrongBits, TheFirstRankMayBeTheWrongOne) {
  const auto wrong = wrong_of({digest({0}, hash_b, "0x1.8p+1"), digest({1, 2})}, all_of(3));
  ASSERT_EQ(ranks_of(wrong), std::vector<int64_t>{0});
  EXPECT_EQ(wrong[0].what, "loss") << "which a step computes first";
}

TEST(WrongBits, SeveralMinoritiesAreAllWrong) {
  const auto wrong =
      wrong_of({digest({4}, hash_b), digest({0, 2, 3}), digest({1}, hash_c)}, all_of(5));
  EXPECT_THAT(ranks_of(wrong), ElementsAre(1, 4));
  EXPECT_TRUE(wrong[0].certain && wrong[1].certain);
}

TEST(WrongBits, OfTwoRanksOrATieNobodyKnowsWho) {
  const auto two = wrong_of({digest({0}), digest({1}, hash_b)}, all_of(2));
  EXPECT_THAT(ranks_of(two), ElementsAre(0, 1));
  EXPECT_FALSE(two[0].certain || two[1].certain);
  EXPECT_EQ(two[0].step, 2);
  const auto tie =
      wrong_of({digest({0, 1}), digest({2, 3}, hash_b), digest({4}, hash_c)}, all_of(5));
  EXPECT_THAT(ranks_of(tie), ElementsAre(0, 1, 2, 3, 4));
  EXPECT_FALSE(tie[4].certain);
}

TEST(WrongBits, OnlyLikeRanksAreHeldAgainstOneAnother) {
  Models mixed = all_of(6);
  mixed[4] = mixed[5] = "A100, 108 multiprocessors";
  const Groups groups = {digest({0, 1, 2}), digest({3, 4, 5}, hash_b)};
  EXPECT_THAT(ranks_of(wrong_of(groups, mixed)), ElementsAre(3)) << "4 and 5 are of another model";
  Groups other_kernels = groups;
  other_kernels[1].kernels = std::string(64, '2');
  EXPECT_TRUE(wrong_of(other_kernels, mixed).empty());
  other_kernels[1].kernels.reset();
  EXPECT_TRUE(wrong_of(other_kernels, mixed).empty()) << "not known";
  Groups other_network = groups;
  other_network[1].parameters = {"z.weight", "other.bias"};
  EXPECT_TRUE(wrong_of(other_network, mixed).empty());
  mixed.erase(3);
  EXPECT_TRUE(wrong_of(groups, mixed).empty()) << "nothing is known of rank 3";
  EXPECT_TRUE(wrong_of({}, mixed).empty());
}

TEST(WrongBits, AFaultOfEveryRunIsPermanent) {
  const Models models = all_of(3);
  const Groups well = {digest({0, 1, 2})}, wrong = {digest({0, 1}), digest({2}, hash_b)};
  const Groups otherwise = {digest({0, 1}), digest({2}, hash_c)};
  const Groups absent = {digest({0, 1})};
  const auto permanent = [&](const std::vector<Groups>& runs) {
    const std::vector<WrongBits> found = wrong_bits(runs, models);
    EXPECT_EQ(ranks_of(found), std::vector<int64_t>{2});
    return found.at(0).permanent;
  };
  EXPECT_EQ(permanent({wrong, wrong, wrong}), true);
  EXPECT_EQ(permanent({wrong, well}), false) << "it passed";
  EXPECT_EQ(permanent({well, wrong}), false);
  EXPECT_EQ(permanent({wrong, otherwise}), false) << "other bits each time";
  EXPECT_EQ(permanent({wrong, absent}), std::nullopt);
  EXPECT_EQ(permanent({wrong, absent, wrong}), true) << "in all of its runs";
  EXPECT_EQ(wrong_bits(std::vector{well, wrong, otherwise}, models).at(0).runs, 2);
}

TEST(WrongBits, OneRunMayMakeSureWhatAnotherLeavesOpen) {
  const Groups tie = {digest({0}), digest({2}, hash_b, "0x1p+3")};
  const Groups sure = {digest({0, 1}), digest({2}, hash_b)};
  const std::vector<WrongBits> found = wrong_bits(std::vector{tie, sure}, all_of(3));
  ASSERT_THAT(ranks_of(found), ElementsAre(0, 2));
  EXPECT_FALSE(found[0].certain);
  EXPECT_TRUE(found[1].certain);
  EXPECT_EQ(found[1].what, "a.bias") << "of the run that is certain";
  EXPECT_EQ(found[1].runs, 2);
}

TEST(DeviceModels, AreOfChipAndMultiprocessorsOrOfTheCpu) {
  Environment host;
  host.gpus.resize(3);
  host.gpus[0].name = "NVIDIA A100-SXM4-80GB";
  host.gpus[1].name = "GRID A100-40C";
  host.gpus[2].name = "NVIDIA A100 80GB PCIe MIG 1g.10gb";
  host.gpus[0].multiprocessors = host.gpus[1].multiprocessors = 108;
  host.gpus[2].multiprocessors = 14;
  nearmetal::Run run;
  run.ranks.resize(4);
  for (int64_t i = 0; i < 3; ++i) {
    run.ranks[i].rank = i;
    run.ranks[i].gpu = i;
  }
  run.ranks[3].rank = 3;
  run.ranks[3].environment = -1;
  const Models models = device_models(run, {host});
  EXPECT_EQ(models.at(0), "A100, 108 multiprocessors");
  EXPECT_EQ(models.at(1), models.at(0)) << "the whole chip as a vGPU";
  EXPECT_EQ(models.at(2), "A100, 14 multiprocessors");
  EXPECT_FALSE(models.contains(3));
  host.gpus[0].multiprocessors = Unknown{"not told"};
  EXPECT_FALSE(device_models(run, {host}).contains(0)) << "a part of it may be another model";
  Environment cpus;
  cpus.cpu_model = std::string("AMD EPYC");
  cpus.usable_cpus = 2;
  run.ranks = {Rank{}};
  EXPECT_THAT(device_models(run, {cpus}).at(0), HasSubstr("AMD EPYC, no id, 2 threads"));
  cpus.cpu_model = Unknown{"not told"};
  EXPECT_TRUE(device_models(run, {cpus}).empty());
}

TEST(MergedDigests, EqualOnesShareAGroupAndJobsCountOn) {
  const auto job = [](const std::vector<DigestGroup>& groups) {
    Report report = made_up_report({{"run", {1000}}});
    nearmetal::Run& run = report.arms[0].runs[0];
    run.world_size = 2;
    run.pipeline.reset();
    run.ranks.push_back(run.ranks[0]);
    run.ranks[1].rank = 1;
    run.ranks[0].window_start_unix_seconds = run.ranks[1].window_start_unix_seconds = 100;
    run.digests = groups;
    return report;
  };
  const nearmetal::Run run = merge_jobs({job({digest({0}), digest({1}, hash_b)}),
                                         job({digest({0, 1})}), job({digest({0, 1}, hash_c)})})
                                 .first;
  ASSERT_EQ(run.digests.size(), 3U);
  EXPECT_THAT(run.digests[0].ranks, ElementsAre(0, 2, 3));
  EXPECT_THAT(run.digests[1].ranks, ElementsAre(1));
  EXPECT_THAT(run.digests[2].ranks, ElementsAre(4, 5));
  ASSERT_EQ(run.jobs.size(), 3U) << run.failure.value_or("");
  const nearmetal::Run second = run_of_job(run, 1);
  ASSERT_EQ(second.digests.size(), 1U);
  EXPECT_THAT(second.digests[0].ranks, ElementsAre(0, 1));
}

TEST(MergedDigests, RanksOfAJob) {
  std::vector<Report> ranks;
  for (const auto& hash : {hash_a, hash_b, hash_a}) {
    const auto rank = std::ssize(ranks);
    ranks.push_back(made_up_report({{"run", {1000}}}));
    ranks.back().arms[0].runs[0].ranks[0].rank = rank;
    ranks.back().arms[0].runs[0].digests = {digest({rank}, hash)};
  }
  const nearmetal::Run run = merge_ranks(ranks).arms[0].runs[0];
  ASSERT_EQ(run.digests.size(), 2U);
  EXPECT_THAT(run.digests[0].ranks, ElementsAre(0, 2));
  EXPECT_THAT(run.digests[1].ranks, ElementsAre(1));
}

TEST(Digests, EachStepHasAHashOfEachParameter) {
  Report report = sample_report();
  EXPECT_NO_THROW(consistent_report_from_json(to_json(report)));
  report.arms[0].runs[0].digests[0].steps[0].sha256.pop_back();
  EXPECT_THROW(consistent_report_from_json(to_json(report)), InvalidReport);
}

RunSet side(const Groups& groups, int64_t seed = 1, const std::string& batch = "256") {
  Report report = made_up_report({{"run", {1000, 1010}}});
  report.invocation.config.seed = seed;
  report.invocation.config.batch = std::stoll(batch);
  for (Environment& environment : report.environments) {
    for (Gpu& gpu : environment.gpus) gpu.multiprocessors = 132;
  }
  for (nearmetal::Run& run : report.arms[0].runs) run.digests = groups;
  RunSet set;
  add_runs(set, report, "made up", true);
  return set;
}

Comparison compared(const RunSet& base, const RunSet& next,
                    const std::vector<std::string>& allowed = {}) {
  CompareOptions options;
  options.same_bits = true;
  options.allow_differ = allowed;
  return compare(base, next, options);
}

std::string last_line(const Comparison& comparison) { return headlines(comparison).back(); }

TEST(SameBits, AreSaidToBeTheSame) {
  const Comparison same = compared(side({digest({0})}), side({digest({0})}));
  ASSERT_EQ(same.bits.size(), 1U);
  EXPECT_EQ(same.bits[0].verdict, BitsVerdict::same);
  EXPECT_EQ(last_line(same), "bits: the same at steps 1, 2 (2 parameters)");
  EXPECT_THAT(verdict_counts(same), HasSubstr("; bits: same"));
}

TEST(SameBits, TheFirstDifferenceOfAnyRunIsNamed) {
  const Comparison differ = compared(side({digest({0})}), side({digest({0}, hash_b, "0x1.8p+1")}));
  EXPECT_EQ(differ.bits.at(0).verdict, BitsVerdict::differ);
  EXPECT_EQ(differ.bits[0].first_step, 2);
  EXPECT_THAT(differ.bits[0].differing, ElementsAre("loss", "a.bias"));
  EXPECT_EQ(last_line(differ), "bits: differ from step 2 on: loss, a.bias");
  RunSet next = side({digest({0})});
  next.arms[0].runs[1].run.digests = {digest({0}, hash_b)};
  EXPECT_EQ(compared(side({digest({0})}), next).bits.at(0).verdict, BitsVerdict::differ);
  EXPECT_EQ(last_line(compared(side({digest({0})}), side({digest({0}, hash_b)}, 2))),
            "bits: differ from step 2 on: a.bias; they have other seeds");
}

TEST(SameBits, AreNotAskedOfOtherKernelsOrWork) {
  DigestGroup other = digest({0}, hash_b);
  other.kernels = std::string(64, '2');
  const Comparison kernels = compared(side({digest({0})}), side({other}));
  EXPECT_EQ(kernels.bits.at(0).verdict, BitsVerdict::not_asked);
  EXPECT_THAT(last_line(kernels), HasSubstr("not asked for the same bits: other kernels were"));
  const Comparison batch = compared(side({digest({0})}), side({digest({0})}, 1, "128"), {"batch"});
  EXPECT_EQ(batch.bits.at(0).verdict, BitsVerdict::not_asked) << "whatever the hashes say";
  EXPECT_THAT(last_line(batch),
              HasSubstr("not asked for the same bits: the sides differ in batch"));
  RunSet unknown = side({digest({0})});
  for (Environment& environment : unknown.environments) {
    for (Gpu& gpu : environment.gpus) gpu.multiprocessors = Unknown{"not told"};
  }
  EXPECT_THAT(last_line(compared(side({digest({0})}), unknown)), HasSubstr("are not known"));
}

TEST(SameBits, DependOnWhereRanksAreIfTheySumGradients) {
  const auto spread = [](bool exchanges) {
    RunSet set = side({digest({0})});
    for (SetRun& run : set.arms[0].runs) {
      std::vector<KeyField> key = run.key;
      find_in(key, "ranks_per_instance", &KeyField::name)->value = "1 1";
      run.key = key;
      if (exchanges) run.run.communication.emplace();
    }
    return set;
  };
  const std::vector<std::string> allowed = {"ranks_per_instance"};
  const Comparison alone = compared(side({digest({0})}), spread(false), allowed);
  EXPECT_EQ(alone.bits.at(0).verdict, BitsVerdict::same);
  const Comparison together = compared(side({digest({0})}), spread(true), allowed);
  EXPECT_EQ(together.bits.at(0).verdict, BitsVerdict::not_asked);
  EXPECT_THAT(last_line(together), HasSubstr("the sides differ in ranks_per_instance"));
}

TEST(SameBits, NeedDigestsOfBothSides) {
  EXPECT_THROW(compared(side({digest({0})}), side({})), NotComparable);
  EXPECT_THROW(compared(side({}), side({digest({0})})), NotComparable);
  EXPECT_TRUE(compare(side({}), side({}), {}).bits.empty()) << "not asked for";
}

TEST(SameBits, AreInEveryForm) {
  const Comparison differ = compared(side({digest({0})}), side({digest({0}, hash_b)}));
  for (const auto print : {+[](std::ostream&out, const Page&page) { print_text(out, page); },
                           +[](std::ostream&out, const Page&page) { print_markdown(out, page); },
                           +[](std::ostream&out, const Page&page) { print_html(out, page); }}) {
    std::ostringstream out;
    print(out, page_of(differ));
    EXPECT_THAT(out.str(), HasSubstr("bits: differ from step 2 on: a.bias"));
  }
  const std::string text = to_json(differ, std::nullopt, ExitCode::gate_failed);
  EXPECT_THAT(text, HasSubstr("\"verdict\": \"differ\""));
  EXPECT_THAT(text, HasSubstr("\"first_step\": 2"));
}

}  // namespace
}  // namespace nearmetal
