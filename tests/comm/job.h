// What the tests share that run in each of several processes that mpirun starts.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/join_all_reduce.h"
#include "comm/world.h"
#include "models/graph.h"
#include "models/load_module.h"
#include "models/program.h"

namespace nearmetal {

extern std::unique_ptr<World> world;  // of all tests: MPI starts once
extern std::string device;            // cpu or cuda: the first argument

/// What sums gradients on `device`, over one group of all ranks where NCCL does; collective.
std::unique_ptr<AllReduce> all_reduce_on_device(AllReduceKind kind = AllReduceKind::automatic);

/// What a test asks of a program beside its graph.
struct TestedStep {
  AllReduce* all_reduce = nullptr;  // null: this rank alone
  int64_t bucket_bytes = 0;
  std::optional<Precision> gradient_type{};
  Precision precision = Precision::fp32;
  LossScale loss_scale{};
  Optimizer optimizer = Optimizer::sgd;
};

/// Trains on the three images of `rank`, from the same parameters in every call; collective.
std::unique_ptr<Program> program_on(const Graph& graph, int rank, const TestedStep& step);
/// From the beginning, with other buckets.
void restart(Program& program, const Graph& graph, AllReduce& all_reduce, int64_t bucket_bytes);

std::vector<float> gradients_of_one_step(Program& program);

/// What one rank computes from the images of all, one after another, in fp32; of one graph in all
/// tests.
const std::vector<double>& mean_of_gradients(const Graph& graph);

/// Of the Euclidean norm.
double relative_difference(const std::vector<float>& found, const std::vector<double>& wanted);

}  // namespace nearmetal
