// Stages of a pipeline, each a program on a thread of its own, against one program with as many
// micro-batches.

#include <cmath>
#include <future>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "models/networks/registry.h"
#include "models/pipeline_cuts.h"
#include "tests/ops/check_program.h"
#include "tests/ops/program_test_cases.h"
#include "tests/ops/thread_links.h"

namespace nearmetal {
namespace {

constexpr int64_t micro_batch_size = 3;
constexpr Schedule schedules[] = {Schedule::gpipe, Schedule::one_forward_one_backward};

ProgramOptions pipeline_options(int64_t count) {
  ProgramOptions options = with_batch(micro_batch_size);
  options.micro_batches = count;
  options.threads = 1;
  return options;
}

std::span<const float> part(const std::vector<float>& all, const ParameterRange& range) {
  return std::span(all).subspan(range.begin, range.count);
}

// The results of some steps; those of a pipeline are what its stages leave, one after another.
struct Trained {
  std::vector<float> parameters, gradients, momentum, second_moments, running_statistics;
  std::vector<StepRecord> records;

  bool operator==(const Trained& other) const {
    return parameters == other.parameters && gradients == other.gradients &&
           momentum == other.momentum && second_moments == other.second_moments &&
           running_statistics == other.running_statistics;
  }
};

void append(const std::vector<float>& more, std::vector<float>& values) {
  values.insert(values.end(), more.begin(), more.end());
}

void append_state(Program& program, Trained& trained) {
  append(program.parameters(), trained.parameters);
  append(program.gradients(), trained.gradients);
  append(program.momentum(), trained.momentum);
  append(program.second_moments(), trained.second_moments);
  append(program.running_statistics(), trained.running_statistics);
}

struct TrainingWork {
  const Graph& graph;
  RandomCase random;
  ProgramOptions options;
  int steps = 3;
};

TrainingWork work_of(const Graph& graph, int64_t micro_batches) {
  return {graph, random_case(graph, micro_batches * micro_batch_size, 1),
          pipeline_options(micro_batches)};
}

Trained train_alone(Backend& backend, const TrainingWork& work) {
  Trained trained;
  const auto program = backend.prepare(work.graph, work.options);
  program->restart(work.random.parameters);
  work.random.give_to(*program);
  for (int i = 0; i < work.steps; ++i) trained.records.push_back(step(*program));
  append_state(*program, trained);
  return trained;
}

class Pipeline : public ProgramTest {
 protected:
  // One stage on the thread that calls.
  Trained train_stage(const TrainingWork& work, std::span<const int> cuts, PipelinePlace place,
                      ThreadPipeline& shared, std::vector<TaskMark>& marks) {
    const PipelineStage stage = make_stage(work.graph, cuts, place.stage);
    ProgramOptions options = work.options;
    options.pipeline = place;
    ThreadLinks links(shared, place.stage);
    const auto program = backend().prepare(stage.graph, options);
    program->connect_stages(links);
    program->restart(part(work.random.parameters, stage.parameters));
    work.random.give_to(*program);
    Trained trained;
    for (int i = 0; i < work.steps; ++i) trained.records.push_back(step(*program));
    append_state(*program, trained);
    EXPECT_EQ(program->device_bytes_by(place.schedule), program->device_bytes());
    EXPECT_GE(program->device_bytes_by(Schedule::gpipe),
              program->device_bytes_by(Schedule::one_forward_one_backward));
    marks = program->task_marks();
    return trained;
  }

  std::vector<Trained> train_stages(const TrainingWork& work, std::span<const int> cuts,
                                    Schedule schedule) {
    const int count = static_cast<int>(cuts.size()) + 1;
    ThreadPipeline shared(count);
    marks_.resize(count);
    std::vector<std::future<Trained>> stages;
    for (int s = 0; s < count; ++s) {
      stages.push_back(std::async(std::launch::async, [&, s] {
        return train_stage(work, cuts, {count, s, schedule}, shared, marks_[s]);
      }));
    }
    std::vector<Trained> trained;
    for (auto& stage : stages) trained.push_back(stage.get());
    return trained;
  }

  std::vector<std::vector<TaskMark>> marks_;
};

Trained joined(const std::vector<Trained>& stages) {
  Trained all;
  for (const Trained& stage : stages) {
    append(stage.parameters, all.parameters);
    append(stage.gradients, all.gradients);
    append(stage.momentum, all.momentum);
    append(stage.second_moments, all.second_moments);
    append(stage.running_statistics, all.running_statistics);
  }
  return all;
}

TEST_F(Pipeline, TrainsAsOneDeviceWithAccumulationBitByBit) {
  const std::vector<std::pair<Graph, std::string>> cases{
      {build_network("resnet20", {16, 10}), "layer1.2,layer3.0"},
      {build_network("resnet20", {16, 10}), "relu,layer2.1,avgpool"},
      {two_block_graph({3, 24, 20}, true), ""},
      {small_vgg_graph({3, 12, 12}, true), ""},
      {small_vit_graph({3, 9, 15}), ""},
      {small_bert_graph(7), ""},
      {small_bert_graph(8), "bert.encoder.layer.0"}};
  for (const auto& [graph, names] : cases) {
    std::vector<int> cuts = cut_points(graph);
    if (!names.empty()) {
      cuts = named_cuts(graph, names, static_cast<int>(std::ranges::count(names, ',')) + 2);
    }
    for (const int64_t micro_batches : {1, 2, 5}) {
      const TrainingWork work = work_of(graph, micro_batches);
      const Trained alone = train_alone(backend(), work);
      for (const Schedule schedule : schedules) {
        const std::vector<Trained> stages = train_stages(work, cuts, schedule);
        EXPECT_TRUE(joined(stages) == alone)
            << graph.name() << " cut behind " << cut_names(graph, cuts) << ", " << micro_batches
            << " micro-batches, " << to_string(schedule);
        for (const Trained& stage : stages) {
          for (int i = 0; i < work.steps; ++i) {
            EXPECT_EQ(stage.records[i].loss, alone.records[i].loss);
            EXPECT_NEAR(stage.records[i].gradient_norm, alone.records[i].gradient_norm,
                        1e-6 * alone.records[i].gradient_norm);
          }
        }
      }
    }
  }
}

TEST_F(Pipeline, AdamwTrainsAsOnOneDevice) {
  const Graph graph = build_network("resnet20", {16, 10});
  TrainingWork work = work_of(graph, 3);
  work.options.optimizer = {.learning_rate = 0.01, .weight_decay = 0.1, .kind = Optimizer::adamw};
  const Trained alone = train_alone(backend(), work);
  EXPECT_EQ(alone.second_moments.size(), alone.parameters.size());
  EXPECT_TRUE(joined(train_stages(work, named_cuts(graph, "layer1.2,layer3.0", 3),
                                  Schedule::one_forward_one_backward)) == alone);
}

TEST_F(Pipeline, AGradientThatIsNotFiniteSkipsTheUpdateOfAllStages) {
  const Graph graph = build_network("resnet20", {16, 10});
  TrainingWork work = work_of(graph, 2);
  work.random.images[0] = std::numeric_limits<float>::quiet_NaN();
  const std::vector<Trained> stages =
      train_stages(work, named_cuts(graph, "layer2", 2), Schedule::one_forward_one_backward);
  for (const Trained& stage : stages) {
    EXPECT_TRUE(stage.records[0].update_skipped);
    EXPECT_TRUE(std::isnan(stage.records[0].loss));
  }
  EXPECT_EQ(joined(stages).parameters, work.random.parameters);
}

TEST_F(Pipeline, ReportsWhenItComputedEachTask) {
  const Graph graph = build_network("resnet20", {16, 10});
  for (const Schedule schedule : schedules) {
    const std::vector<Trained> stages =
        train_stages(work_of(graph, 4), named_cuts(graph, "layer2", 2), schedule);
    for (int s = 0; s < 2; ++s) {
      const std::vector<StageTask> tasks = stage_tasks(schedule, 2, 4, s);
      ASSERT_EQ(marks_[s].size(), tasks.size());
      double busy = 0, end = 0;
      for (size_t i = 0; i < tasks.size(); ++i) {
        EXPECT_EQ(marks_[s][i].task, tasks[i]);
        EXPECT_GE(marks_[s][i].begin_seconds, end);
        end = marks_[s][i].end_seconds;
        busy += end - marks_[s][i].begin_seconds;
      }
      const PipelineSeconds& seconds = stages[s].records.back().pipeline;
      EXPECT_NEAR(seconds.busy(), busy, 1e-9);
      EXPECT_GE(seconds.span, busy + seconds.waiting + seconds.sending);
      EXPECT_LE(seconds.span, stages[s].records.back().seconds);
    }
    EXPECT_GE(bubble_of(marks_), 0);
  }
}

// The first two of three stages; the planner of memory sees only the order of their tasks.
TEST_F(Pipeline, OneForwardOneBackwardHoldsFewerActivations) {
  const Graph graph = build_network("resnet20", {32, 10});
  const std::vector<int> cuts = named_cuts(graph, "layer2,layer3.0", 3);
  const auto bytes_beyond_images = [&](Schedule schedule, int stage, int64_t micro_batches) {
    ProgramOptions options = pipeline_options(micro_batches);
    options.pipeline = {3, stage, schedule};
    const PipelineStage made = make_stage(graph, cuts, stage);
    const int64_t images = stage > 0 ? 0 : options.step_images() * graph.image().elements() * 4;
    return backend().prepare(made.graph, options)->device_bytes() - images;
  };
  for (const int stage : {0, 1}) {
    const int64_t eager = bytes_beyond_images(Schedule::one_forward_one_backward, stage, 12);
    EXPECT_GT(bytes_beyond_images(Schedule::gpipe, stage, 12), 2 * eager) << stage;
    // Grows with the micro-batches in flight alone.
    EXPECT_LT(bytes_beyond_images(Schedule::one_forward_one_backward, stage, 6), 1.05 * eager);
    EXPECT_GT(bytes_beyond_images(Schedule::one_forward_one_backward, stage, 6), 0.95 * eager);
  }
}

TEST_F(Pipeline, NeedsNeighbours) {
  const Graph graph = build_network("resnet20", {16, 10});
  const PipelineStage first = make_stage(graph, named_cuts(graph, "layer2", 2), 0);
  ProgramOptions options = pipeline_options(2);
  ThreadPipeline shared(2);
  ThreadLinks links(shared, 0);
  EXPECT_THROW(backend().prepare(graph, options)->connect_stages(links), std::logic_error);
  options.pipeline = {2, 0, Schedule::gpipe};
  const auto stage = backend().prepare(first.graph, options);
  EXPECT_THROW(stage->enqueue_step(), std::logic_error);
  EXPECT_EQ(stage->boundary_bytes(), micro_batch_size * 32 * 8 * 8 * 4);
}

}  // namespace
}  // namespace nearmetal
