#include "models/step_order.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/names.h"

namespace nearmetal {
namespace {

using ::testing::ElementsAre;
using Kind = StepEventKind;

std::string text(const StepEvent& event) {
  std::string name = to_string(event.kind);
  switch (event.kind) {
    case Kind::start_transfer:
    case Kind::finish_transfer:
      return name + " " + to_string(event.transfer) + " " + std::to_string(event.micro_batch);
    case Kind::begin_task:
    case Kind::end_task:
      return name + " of task " + std::to_string(event.task);
    case Kind::forward:
    case Kind::backward:
    case Kind::end_backward:
      return name + " " + std::to_string(event.micro_batch);
    case Kind::add_gradients:
      return name + " " + std::to_string(event.micro_batch) + " (" + to_string(event.part) + ")";
    default:
      return name;
  }
}

std::vector<std::string> names_of(const StepFacts& facts) {
  std::vector<std::string> names;
  for (const StepEvent& event : step_order(facts)) names.push_back(text(event));
  return names;
}

TEST(StepOrder, OfTheLastOfTwoStages) {
  EXPECT_THAT(
      names_of({.pipeline = {2, 1, Schedule::one_forward_one_backward}, .micro_batches = 4}),
      ElementsAre("input", "begin of the pipeline",                       //
                  "start receive value 0", "finish receive value 0",      //
                  "begin of task 0", "forward 0", "end of task 0",        //
                  "start receive value 1",                                // ahead
                  "begin of task 1", "backward 0",                        //
                  "start send gradient 0",                                // before the sums
                  "end of backward 0", "add 0 (first)", "end of task 1",  //
                  "finish receive value 1",                               //
                  "begin of task 2", "forward 1", "end of task 2",        //
                  "start receive value 2",                                //
                  "begin of task 3", "backward 1", "start send gradient 1", "end of backward 1",
                  "add 1 (middle)", "end of task 3",                //
                  "finish receive value 2",                         //
                  "begin of task 4", "forward 2", "end of task 4",  //
                  "start receive value 3",                          //
                  "begin of task 5", "backward 2", "start send gradient 2", "end of backward 2",
                  "add 2 (middle)", "end of task 5",
                  "finish send gradient 0",                         // two are left on their way
                  "finish receive value 3",                         //
                  "begin of task 6", "forward 3", "end of task 6",  //
                  "begin of task 7", "backward 3", "start send gradient 3", "end of backward 3",
                  "add 3 (last)", "end of task 7", "finish send gradient 1",
                  "finish send gradient 2", "finish send gradient 3", "finish step",
                  "sum over stages", "end of the pipeline", "update"));
}

TEST(StepOrder, OfTheFirstOfTwoStages) {
  EXPECT_THAT(names_of({.pipeline = {2, 0, Schedule::gpipe}, .micro_batches = 2}),
              ElementsAre("input", "begin of the pipeline",  //
                          "begin of task 0", "forward 0", "start send value 0", "end of task 0",
                          "begin of task 1", "forward 1", "start send value 1", "end of task 1",
                          "start receive gradient 0", "finish receive gradient 0",
                          "finish send value 0", "start receive gradient 1",  //
                          "begin of task 2", "backward 0", "end of backward 0", "add 0 (first)",
                          "end of task 2",  //
                          "finish receive gradient 1", "finish send value 1", "begin of task 3",
                          "backward 1", "end of backward 1", "add 1 (last)",
                          "end of task 3",  //
                          "finish step", "sum over stages", "end of the pipeline", "update"));
}

TEST(StepOrder, OfAWholeNetwork) {
  EXPECT_THAT(names_of({}), ElementsAre("input", "forward 0", "backward 0", "end of backward 0",
                                        "finish step", "update"));
  EXPECT_THAT(names_of({.micro_batches = 3}),
              ElementsAre("input",                                                           //
                          "forward 0", "backward 0", "end of backward 0", "add 0 (first)",   //
                          "forward 1", "backward 1", "end of backward 1", "add 1 (middle)",  //
                          "forward 2", "backward 2", "end of backward 2", "add 2 (last)",    //
                          "finish step", "update"));
  EXPECT_THAT(names_of({.forward_only = true}), ElementsAre("input", "forward 0", "finish step"));
  EXPECT_THAT(names_of({.trainable = false, .forward_only = true}),
              ElementsAre("input", "forward 0"));
}

TEST(StepOrder, OfAStageHasABackwardPass) {
  EXPECT_THROW(step_order({.pipeline = {2, 0}, .forward_only = true}), std::invalid_argument);
  EXPECT_THROW(step_order({.pipeline = {2, 2}}), std::invalid_argument);
}

std::vector<StepFacts> many_stages() {
  std::vector<StepFacts> all;
  for (const Schedule schedule : {Schedule::gpipe, Schedule::one_forward_one_backward}) {
    for (int stages = 2; stages <= 5; ++stages) {
      for (int stage = 0; stage < stages; ++stage) {
        for (const int64_t micro_batches : {1, 2, 3, 8}) {
          all.push_back({.pipeline = {stages, stage, schedule}, .micro_batches = micro_batches});
        }
      }
    }
  }
  return all;
}

// Of one transfer and micro-batch: where it is started and where it is finished.
using Transfers = std::map<std::pair<Transfer, int64_t>, std::pair<size_t, size_t>>;

TEST(StepOrder, TransfersSurroundWhatTheyBringAndTake) {
  for (const StepFacts& facts : many_stages()) {
    const std::vector<StepEvent> events = step_order(facts);
    Transfers transfers;
    std::map<std::pair<Kind, int64_t>, size_t> passes;
    for (size_t i = 0; i < events.size(); ++i) {
      const StepEvent& event = events[i];
      if (event.kind == Kind::start_transfer) {
        EXPECT_TRUE(transfers.try_emplace({event.transfer, event.micro_batch}, i, 0).second);
      } else if (event.kind == Kind::finish_transfer) {
        size_t& finish = transfers.at({event.transfer, event.micro_batch}).second;
        EXPECT_EQ(finish, 0u) << "once";
        finish = i;
      } else {
        passes[{event.kind, event.micro_batch}] = i;
      }
    }
    const size_t boundaries = (facts.pipeline.stage > 0 ? 1 : 0) +
                              (facts.pipeline.stage + 1 < facts.pipeline.stages ? 1 : 0);
    EXPECT_EQ(transfers.size(), 2 * boundaries * facts.micro_batches);
    for (const auto& [key, place] : transfers) {
      const auto [transfer, micro_batch] = key;
      const bool value = transfer == Transfer::receive_value || transfer == Transfer::send_value;
      const size_t pass = passes.at({value ? Kind::forward : Kind::backward, micro_batch});
      const auto [start, finish] = place;
      if (is_receive(transfer)) {
        EXPECT_LT(start, finish);
        EXPECT_LT(finish, pass);
      } else {
        EXPECT_EQ(start, pass + 1) << "nothing delays the neighbour";
        EXPECT_LT(start, finish);
      }
    }
  }
}

TEST(StepOrder, TwoGradientsAreOnTheirWayWhileTheNextIsComputed) {
  for (const StepFacts& facts : many_stages()) {
    std::set<int64_t> sent;
    size_t most = 0;
    for (const StepEvent& event : step_order(facts)) {
      if (event.kind == Kind::backward) most = std::max(most, sent.size());
      if (event.transfer != Transfer::send_gradient) continue;
      if (event.kind == Kind::start_transfer) sent.insert(event.micro_batch);
      if (event.kind == Kind::finish_transfer) sent.erase(event.micro_batch);
    }
    EXPECT_TRUE(sent.empty());
    const int64_t before = facts.pipeline.stage > 0 ? facts.micro_batches - 1 : 0;
    EXPECT_EQ(static_cast<int64_t>(most), std::min<int64_t>(2, before));
  }
}

// The stages of a pipeline, of which each waits where it finishes a transfer until both sides have
// started it: no transfer is buffered.
class Stages {
 public:
  Stages(int stages, Schedule schedule, int64_t micro_batches) {
    for (int s = 0; s < stages; ++s) {
      orders_.push_back(
          step_order({.pipeline = {stages, s, schedule}, .micro_batches = micro_batches}));
    }
    next_.resize(stages);
  }

  bool all_end() {
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t s = 0; s < orders_.size(); ++s) moved |= move(s);
    }
    return std::ranges::equal(next_, orders_, std::ranges::equal_to(), std::identity(),
                              &std::vector<StepEvent>::size);
  }

 private:
  bool move(size_t s) {
    const size_t before = next_[s];
    for (; next_[s] < orders_[s].size(); ++next_[s]) {
      const StepEvent& event = orders_[s][next_[s]];
      if (event.kind == Kind::start_transfer)
        started_.insert({s, event.transfer, event.micro_batch});
      if (event.kind == Kind::finish_transfer && !started_.contains(other_side(s, event))) break;
    }
    return next_[s] > before;
  }

  using Side = std::tuple<size_t, Transfer, int64_t>;
  static Side other_side(size_t s, const StepEvent& event) {
    static const std::map<Transfer, Transfer> others{
        {Transfer::receive_value, Transfer::send_value},
        {Transfer::send_value, Transfer::receive_value},
        {Transfer::receive_gradient, Transfer::send_gradient},
        {Transfer::send_gradient, Transfer::receive_gradient}};
    return {is_to_next(event.transfer) ? s + 1 : s - 1, others.at(event.transfer),
            event.micro_batch};
  }

  std::vector<std::vector<StepEvent>> orders_;
  std::vector<size_t> next_;  // by stage
  std::set<Side> started_;
};

TEST(StepOrder, LocksNoStagesUp) {
  for (const StepFacts& facts : many_stages()) {
    const auto& [stages, stage, schedule] = facts.pipeline;
    EXPECT_TRUE(Stages(stages, schedule, facts.micro_batches).all_end())
        << stages << " stages by " << to_string(schedule) << ", " << facts.micro_batches;
  }
}

std::string text(const ExchangeEvent& event) {
  const bool of_all = event.kind == ExchangeEventKind::finish;
  std::string line = std::to_string(event.before) + ": " + to_string(event.kind);
  if (event.kind == ExchangeEventKind::convert_back) {
    return line + " section " + std::to_string(event.section);
  }
  if (!of_all) line += " " + std::to_string(event.bucket);
  for (size_t i = 1; i < event.count; ++i) line += "+" + std::to_string(event.bucket + i);
  return line;
}

std::vector<std::string> names_of(const std::vector<ExchangeEvent>& events) {
  std::vector<std::string> names;
  for (const ExchangeEvent& event : events) names.push_back(text(event));
  return names;
}

const std::vector<BucketRange> three{{0, 10, 4}, {10, 20, 6}, {20, 25, 6}};

TEST(ExchangeOrder, EachBucketStartsBehindTheKernelThatCompletesIt) {
  const std::vector<GradientSection> all{{three}};
  EXPECT_THAT(names_of(exchange_order(all, false, 9)),
              ElementsAre("5: start 0", "7: start 1", "7: start 2", "9: finish"));
}

TEST(ExchangeOrder, ABucketBecomesTheMeanAndIsConvertedBeforeItsStart) {
  const std::vector<GradientSection> all{{three, true}};
  EXPECT_THAT(names_of(exchange_order(all, true, 7)),
              ElementsAre("5: mean 0", "5: convert 0", "5: start 0", "7: mean 1", "7: convert 1",
                          "7: start 1", "7: mean 2", "7: convert 2", "7: start 2", "7: finish",
                          "7: convert back section 0"));
}

TEST(ExchangeOrder, ASectionEndsTogetherWithTheNext) {
  const BucketRange vectors{0, 5, 8};
  const auto names = [&](bool matrices_converted, bool vectors_converted, bool is_mean) {
    const std::vector<GradientSection> sections{{three, matrices_converted},
                                                {{vectors}, vectors_converted}};
    return names_of(exchange_order(sections, is_mean, 9));
  };
  EXPECT_THAT(names(false, false, false),
              ElementsAre("5: start 0", "7: start 1", "9: start 2+3", "9: finish"));
  EXPECT_THAT(names(true, false, false), ElementsAre("5: convert 0", "5: start 0", "7: convert 1",
                                                     "7: start 1", "9: convert 2", "9: start 2+3",
                                                     "9: finish", "9: convert back section 0"));
  EXPECT_THAT(
      names(false, true, true),
      ElementsAre("5: mean 0", "5: start 0", "7: mean 1", "7: start 1", "9: mean 2", "9: mean 3",
                  "9: convert 3", "9: start 2+3", "9: finish", "9: convert back section 1"));
}

TEST(ExchangeOrder, KernelsOfTheExchangeStandAtTheirPlaces) {
  const std::vector<GradientSection> all{{{{0, 1, 0}, {1, 2, 1}}}};
  const std::vector<ExchangeEvent> events = exchange_order(all, false, 2);
  const auto kernels = with_exchange<std::string>({"k0", "k1", "update"}, events,
                                                  [](const ExchangeEvent& e) { return text(e); });
  EXPECT_THAT(kernels, ElementsAre("k0", "1: start 0", "k1", "2: start 1", "2: finish", "update"));
}

}  // namespace
}  // namespace nearmetal
