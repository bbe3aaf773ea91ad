#include "models/pipeline_schedule.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <stdexcept>
#include <string>

#include "base/names.h"

namespace nearmetal {
namespace {

using ::testing::ElementsAre;

constexpr Schedule schedules[] = {Schedule::gpipe, Schedule::one_forward_one_backward};

// "F0 F1 B0 B1"
std::string text_of(const std::vector<StageTask>& tasks) {
  std::string text;
  for (const StageTask& task : tasks) {
    text += (text.empty() ? "" : " ") + std::string(task.pass == Pass::forward ? "F" : "B") +
            std::to_string(task.micro_batch);
  }
  return text;
}

TEST(Schedule, GpipeHasAllForwardPassesFirst) {
  for (int stage = 0; stage < 2; ++stage) {
    EXPECT_EQ(text_of(stage_tasks(Schedule::gpipe, 2, 3, stage)), "F0 F1 F2 B0 B1 B2");
  }
}

TEST(Schedule, OneForwardOneBackwardGoesBackAsSoonAsItCan) {
  const Schedule kind = Schedule::one_forward_one_backward;
  EXPECT_EQ(text_of(stage_tasks(kind, 3, 4, 0)), "F0 F1 F2 B0 F3 B1 B2 B3");
  EXPECT_EQ(text_of(stage_tasks(kind, 3, 4, 1)), "F0 F1 B0 F2 B1 F3 B2 B3");
  EXPECT_EQ(text_of(stage_tasks(kind, 3, 4, 2)), "F0 B0 F1 B1 F2 B2 F3 B3");
  EXPECT_EQ(text_of(stage_tasks(kind, 4, 2, 0)), "F0 F1 B0 B1") << "fewer than stages";
}

TEST(Schedule, OfOneStageIsAccumulation) {
  for (const Schedule kind : schedules)
    EXPECT_EQ(text_of(stage_tasks(kind, 1, 2, 0)), "F0 B0 F1 B1");
}

TEST(Schedule, HoldsAllMicroBatchesOrAsManyAsStagesAreLeft) {
  for (int stage = 0; stage < 4; ++stage) {
    for (const int micro_batches : {1, 2, 4, 9}) {
      const auto held = [&](Schedule kind) {
        return most_in_flight(kind, 4, micro_batches, stage);
      };
      EXPECT_EQ(held(Schedule::gpipe), micro_batches);
      EXPECT_EQ(held(Schedule::one_forward_one_backward), std::min(4 - stage, micro_batches));
    }
  }
}

TEST(Schedule, NothingIsReceivedAheadOfWhatItDependsOn) {
  const auto ahead = [](Schedule kind, int micro_batches, int stage, size_t index) {
    return may_receive_ahead(kind, 2, micro_batches, stage, index);
  };
  // F0 F1 F2 B0 B1 B2: the second stage goes back only once it has the last value.
  EXPECT_FALSE(ahead(Schedule::gpipe, 3, 0, 2));
  EXPECT_TRUE(ahead(Schedule::gpipe, 3, 0, 3));
  EXPECT_TRUE(ahead(Schedule::gpipe, 3, 1, 0));
  EXPECT_FALSE(ahead(Schedule::gpipe, 3, 1, 2)) << "its own loss gives the gradient";
  // F0 F1 B0 F2 B1 B2 beside F0 B0 F1 B1 F2 B2
  const Schedule kind = Schedule::one_forward_one_backward;
  EXPECT_TRUE(ahead(kind, 3, 0, 1));
  EXPECT_TRUE(ahead(kind, 3, 1, 1));
  EXPECT_TRUE(ahead(kind, 3, 1, 3));
  EXPECT_FALSE(ahead(kind, 1, 0, 0)) << "model parallel: nothing overlaps";
}

TEST(Schedule, RefusesWhatIsNotThere) {
  EXPECT_THROW(stage_tasks(Schedule::gpipe, 2, 1, 2), std::invalid_argument);
  EXPECT_THROW(stage_tasks(Schedule::gpipe, 2, 1, -1), std::invalid_argument);
  EXPECT_THROW(stage_tasks(Schedule::gpipe, 2, 0, 0), std::invalid_argument);
}

TEST(SimulatedPipeline, OfEqualStagesHasTheIdealBubble) {
  for (const Schedule kind : schedules) {
    for (const int stages : {1, 2, 3, 8}) {
      for (const int micro_batches : {1, 2, 5, 32}) {
        const std::vector<StageTimes> times(stages, {1, 2});
        EXPECT_NEAR(bubble_of(simulate_pipeline(kind, times, micro_batches)),
                    ideal_bubble(stages, micro_batches), 1e-12)
            << to_string(kind) << ' ' << stages << ' ' << micro_batches;
      }
    }
  }
}

TEST(SimulatedPipeline, ByHand) {
  const std::vector<StageTimes> times{{1, 2}, {2, 3}};
  const auto marks = simulate_pipeline(Schedule::one_forward_one_backward, times, 2);
  ASSERT_EQ(marks.size(), 2u);
  EXPECT_THAT(
      marks[0],
      ElementsAre(TaskMark{{Pass::forward, 0}, 0, 1}, TaskMark{{Pass::forward, 1}, 1, 2},
                  TaskMark{{Pass::backward, 0}, 6, 8}, TaskMark{{Pass::backward, 1}, 11, 13}));
  EXPECT_THAT(
      marks[1],
      ElementsAre(TaskMark{{Pass::forward, 0}, 1, 3}, TaskMark{{Pass::backward, 0}, 3, 6},
                  TaskMark{{Pass::forward, 1}, 6, 8}, TaskMark{{Pass::backward, 1}, 8, 11}));
  EXPECT_DOUBLE_EQ(bubble_of(marks), 1 - 16.0 / 26);
}

TEST(SimulatedPipeline, WaitsForWhatTravels) {
  const std::vector<StageTimes> times{{1, 2, 1}, {2, 3, 0}};
  const auto marks = simulate_pipeline(Schedule::one_forward_one_backward, times, 2);
  EXPECT_THAT(
      marks[0],
      ElementsAre(TaskMark{{Pass::forward, 0}, 0, 1}, TaskMark{{Pass::forward, 1}, 1, 2},
                  TaskMark{{Pass::backward, 0}, 8, 10}, TaskMark{{Pass::backward, 1}, 13, 15}));
  EXPECT_THAT(
      marks[1],
      ElementsAre(TaskMark{{Pass::forward, 0}, 2, 4}, TaskMark{{Pass::backward, 0}, 4, 7},
                  TaskMark{{Pass::forward, 1}, 7, 9}, TaskMark{{Pass::backward, 1}, 9, 12}));
}

TEST(SimulatedPipeline, OneValueAtATimeTravelsInEachDirection) {
  const std::vector<StageTimes> times{{1, 2, 4}, {2, 3, 0}};
  const auto marks = simulate_pipeline(Schedule::gpipe, times, 2);
  EXPECT_THAT(
      marks[0],
      ElementsAre(TaskMark{{Pass::forward, 0}, 0, 1}, TaskMark{{Pass::forward, 1}, 1, 2},
                  TaskMark{{Pass::backward, 0}, 18, 20}, TaskMark{{Pass::backward, 1}, 22, 24}));
  EXPECT_THAT(
      marks[1],
      ElementsAre(TaskMark{{Pass::forward, 0}, 5, 7}, TaskMark{{Pass::forward, 1}, 9, 11},
                  TaskMark{{Pass::backward, 0}, 11, 14}, TaskMark{{Pass::backward, 1}, 14, 17}));
}

TEST(SimulatedPipeline, TasksMayHaveTimesOfTheirOwn) {
  const std::vector<StageTimes> times{{.task_seconds = {1, 2, 3, 4}}, {2, 3}};
  EXPECT_THAT(
      simulate_pipeline(Schedule::one_forward_one_backward, times, 2)[0],
      ElementsAre(TaskMark{{Pass::forward, 0}, 0, 1}, TaskMark{{Pass::forward, 1}, 1, 3},
                  TaskMark{{Pass::backward, 0}, 6, 9}, TaskMark{{Pass::backward, 1}, 11, 15}));
}

TEST(SimulatedPipeline, UnequalStagesWaitForTheSlowest) {
  const std::vector<StageTimes> times{{1, 1}, {3, 3}};
  for (const Schedule kind : schedules) {
    const double bubble = bubble_of(simulate_pipeline(kind, times, 100));
    EXPECT_GT(bubble, 1.0 / 3) << "the first stage idles two thirds of its time";
    EXPECT_LT(bubble, 0.34);
  }
}

TEST(Bubble, OfNothingIsNone) {
  EXPECT_EQ(bubble_of({}), 0);
  EXPECT_EQ(bubble_of(std::vector<std::vector<TaskMark>>(2)), 0);
}

TEST(Clocks, AreAlignedByWhatTravelsBetweenStages) {
  const std::vector<StageTimes> times{{1, 2}, {1, 2}, {1, 2}};
  for (const Schedule kind : schedules) {
    const auto truth = simulate_pipeline(kind, times, 4);
    auto marks = truth;
    for (size_t s = 0; s < marks.size(); ++s) {
      for (TaskMark& mark : marks[s]) {
        mark.begin_seconds += 100 - 7.5 * static_cast<double>(s);
        mark.end_seconds += 100 - 7.5 * static_cast<double>(s);
      }
    }
    align_clocks(marks);
    EXPECT_EQ(marks, truth) << to_string(kind);
  }
}

// The others waited for the stage that reads them, or queued behind one another.
TEST(Clocks, AreAlignedByTheValueThatTravelledFastest) {
  const auto mark = [](Pass pass, int micro_batch, double begin) {
    return TaskMark{{pass, micro_batch}, begin, begin + 1};
  };
  for (const int fastest : {0, 1, 2}) {
    std::vector<std::vector<TaskMark>> marks(2);
    for (int i = 0; i < 3; ++i) {
      const double there = i == fastest ? 0.5 : 2, back = i == (fastest + 1) % 3 ? 0.5 : 2;
      marks[0].push_back(mark(Pass::forward, i, 10 * i));
      marks[1].push_back(mark(Pass::forward, i, 10 * i + 1 + there));
      marks[1].push_back(mark(Pass::backward, i, 10 * i + 4));
      marks[0].push_back(mark(Pass::backward, i, 10 * i + 5 + back));
    }
    const auto truth = marks;
    for (TaskMark& late : marks[1]) {
      late.begin_seconds += 1000;
      late.end_seconds += 1000;
    }
    align_clocks(marks);
    EXPECT_EQ(marks, truth) << fastest;
  }
}

TEST(Clocks, NeedTheSameMicroBatches) {
  std::vector<std::vector<TaskMark>> marks{{{{Pass::forward, 0}, 0, 1}}, {}};
  EXPECT_THROW(align_clocks(marks), std::invalid_argument);
}

}  // namespace
}  // namespace nearmetal
