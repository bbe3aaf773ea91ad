#include "tests/comm/job.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "bench/run/together.h"
#include "models/graph.h"
#include "models/synthetic.h"
#include "reports/json/kernel_cache.h"

namespace nearmetal {

std::unique_ptr<World> world;
std::string device = "cpu";

namespace {

constexpr int64_t batch = 3;

struct Shard {
  std::vector<float> images;
  std::vector<int32_t> labels;
};

// The shard that rank `rank` trains on.
Shard shard_of(const Graph& graph, int rank) {
  Shard shard;
  shard.images.resize(batch * graph.image().elements());
  for (size_t i = 0; i < shard.images.size(); ++i) {
    shard.images[i] = normal_at(image_seed(100 + rank), i);
  }
  for (int64_t i = 0; i < batch; ++i) {
    shard.labels.push_back(static_cast<int32_t>((7 * rank + i) % graph.classes()));
  }
  return shard;
}

void begin(Program& program, const Graph& graph, int rank) {
  program.restart(initial_parameters(graph, 1));
  const Shard shard = shard_of(graph, rank);
  program.use_batch(shard.images, shard.labels);
}

// As in a run, one rank chooses for all: engines of a GPU differ in the order of their sums, and
// which of them is fastest differs from time to time. All tests train the same network.
const std::vector<KernelChoice>& kernels_of_all(const Graph& graph, const ProgramOptions& options) {
  static std::map<Precision, std::vector<KernelChoice>> known;
  const auto found = known.find(options.precision);
  if (found != known.end()) return found->second;
  std::vector<KernelChoice> chosen;
  if (world->rank() == 0) chosen = load_backend(device).choose_kernels(graph, options);
  chosen = kernel_choices_from_json(world->broadcast(kernel_choices_to_json(chosen)));
  return known[options.precision] = chosen;
}

bool has_gpu_for_each_rank() {
  try {
    return load_backend("cuda").device_count() >= world->local_size();
  } catch (const std::runtime_error& error) {
    std::puts(error.what());
    return false;
  }
}

}  // namespace

std::unique_ptr<AllReduce> all_reduce_on_device(AllReduceKind kind) {
  const Collective& collective = collective_for(kind, device == "cuda");
  JoinRequest request{.world = *world, .gpu = world->local_rank()};
  if (collective.nccl != NcclGroup::none) request.group = new_nccl_group(*world, load_nccl());
  return join_all_reduce(collective, request);
}

std::unique_ptr<Program> program_on(const Graph& graph, int rank, const TestedStep& step) {
  ProgramOptions options;
  options.batch_size = batch;
  options.precision = step.precision;
  options.gradient_type = step.gradient_type;
  options.loss_scale = step.loss_scale;
  options.optimizer.kind = step.optimizer;
  options.threads = 1;
  options.gpu = world->local_rank();
  options.kernel_choices = kernels_of_all(graph, options);
  options.kernel_choices_pinned = device == "cuda";
  auto program = load_backend(device).prepare(graph, options);
  if (step.all_reduce != nullptr) program->exchange_gradients(*step.all_reduce, step.bucket_bytes);
  begin(*program, graph, rank);
  return program;
}

void restart(Program& program, const Graph& graph, AllReduce& all_reduce, int64_t bucket_bytes) {
  program.exchange_gradients(all_reduce, bucket_bytes);
  begin(program, graph, world->rank());
}

std::vector<float> gradients_of_one_step(Program& program) {
  program.enqueue_step();
  program.wait_step();
  return program.gradients();
}

const std::vector<double>& mean_of_gradients(const Graph& graph) {
  static std::vector<double> mean;
  if (!mean.empty()) return mean;
  mean.resize(graph.parameter_count());
  for (int rank = 0; rank < world->size(); ++rank) {
    const auto program = program_on(graph, rank, {});
    const std::vector<float> gradients = gradients_of_one_step(*program);
    for (size_t i = 0; i < mean.size(); ++i) mean[i] += gradients[i] / world->size();
  }
  return mean;
}

double relative_difference(const std::vector<float>& found, const std::vector<double>& wanted) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i < wanted.size(); ++i) {
    difference += (found[i] - wanted[i]) * (found[i] - wanted[i]);
    norm += wanted[i] * wanted[i];
  }
  return std::sqrt(difference / norm);
}

}  // namespace nearmetal

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (argc > 1) nearmetal::device = argv[1];
  nearmetal::world = nearmetal::join_world(0, "a test");
  if (nearmetal::world->size() < 2) {
    std::fputs("to be started by mpirun, with two ranks at least\n", stderr);
    return 1;
  }
  if (nearmetal::device == "cuda" && !nearmetal::has_gpu_for_each_rank()) {
    std::puts("SKIPPED: there is no GPU for each rank");
    nearmetal::world.reset();
    return 0;
  }
  const int result = RUN_ALL_TESTS();
  nearmetal::world.reset();
  return result;
}
