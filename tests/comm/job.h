// Helpers of the tests that run in each of several processes that mpirun starts.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/join_ranks.h"
#include "comm/world.h"
#include "models/graph.h"
#include "models/load_module.h"
#include "models/program.h"

namespace nearmetal {

extern std::unique_ptr<World> world;  // of all tests: MPI starts once
extern std::string device;            // cpu or cuda: the first argument

/// The AllReduce on `device`, over one group of all ranks where it is NCCL's; collective.
std::unique_ptr<AllReduce> all_reduce_on_device(AllReduceKind kind = AllReduceKind::automatic);

/// The options of a program that a test sets, beside its graph.
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

/// The mean gradients that one rank computes from the images of all, one after another, in fp32;
/// for one graph in all tests.
const std::vector<double>& mean_of_gradients(const Graph& graph);

/// The relative difference in the Euclidean norm.
double relative_difference(const std::vector<float>& found, const std::vector<double>& wanted);

}  // namespace nearmetal
