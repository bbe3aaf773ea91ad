#include "bench/run/rank_proof.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench/run/summary.h"
#include "reports/files/sha256.h"

namespace nearmetal {
namespace {

constexpr int exchange_repeats = 5;

std::string hash_of(std::span<const float> values) {
  return sha256({reinterpret_cast<const char*>(values.data()), values.size_bytes()});
}

// The first rank whose text is another than rank 0's; 0: none.
size_t first_that_differs(World& world, const std::string& text) {
  const std::vector<std::string> all = world.all_gather(text);
  const auto other = std::find_if(all.begin(), all.end(),
                                  [&](const std::string& theirs) { return theirs != all[0]; });
  return other == all.end() ? 0 : other - all.begin();
}

}  // namespace

void require_same_parameters(World& world, std::span<const float> parameters) {
  if (world.size() == 1) return;
  const size_t other = first_that_differs(world, hash_of(parameters));
  if (other == 0) return;
  throw std::runtime_error("the seed gave rank " + std::to_string(other) +
                           " other initial parameters than rank 0: their libraries differ");
}

void prove_replicas(World& world, Program& program, Run& run) {
  const size_t other =
      first_that_differs(world, hash_of(program.parameters()) + hash_of(program.momentum()));
  run.proof.replicas_identical = other == 0;
  if (other > 0) {
    fail_run(run, "the parameters or momentum of rank " + std::to_string(other) +
                      " are not those of rank 0 at the end");
  }
}

void measure_exchange(AllReduce& all_reduce, Communication found, Run& run) {
  found.library = all_reduce.library();
  bool exact = true;
  const double ranks = all_reduce.ranks();
  for (const BucketTest& test : all_reduce.test(exchange_repeats)) {
    exact = exact && test.exact;
    found.bytes_per_step += test.bytes;
    found.buckets_seconds += test.seconds;
    found.buckets.push_back(
        {.bytes = test.bytes,
         .seconds = test.seconds,
         .bus_bandwidth_bytes_per_second =
             2 * (ranks - 1) / ranks * static_cast<double>(test.bytes) / test.seconds,
         .type = test.type});
  }
  run.communication = found;
  run.proof.sums_exact = exact;
  if (!exact) fail_run(run, "the gradients of the ranks are not summed right");
}

}  // namespace nearmetal
