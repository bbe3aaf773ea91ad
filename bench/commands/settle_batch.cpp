#include "bench/commands/settle_batch.h"

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <string>

#include "bench/run/defaults.h"
#include "bench/run/together.h"

namespace nearmetal {
namespace {

// --batch auto: a little below what fits, as other processes take memory meanwhile; no tensor of
// 2^31 elements or more, as the fast convolution kernels do not index that far (batch 3,456 of
// ResNet-50 in fp16 on an H200: 563 images/s; 2,624: 11,488); and a multiple of 32, as the tiles of
// matrix units waste what is left over.
int64_t comfortable_batch(int64_t largest, int64_t largest_indexed) {
  const int64_t batch = std::min(largest - largest / 50, largest_indexed);
  return batch >= 64 ? batch / 32 * 32 : batch;
}

}  // namespace

void settle_batch(PreparedDevice& device, const Graph& graph, const KernelSource& kernels,
                  World& world, const Terminal& terminal) {
  RunConfig& config = device.config;
  if (config.batch != largest_that_fits) return;
  config.batch.reset();
  RunConfig smallest = config;
  smallest.batch = 1;
  fill_defaults(smallest, device.config.device);
  const ProgramOptions options = program_options(smallest, kernels, world.size(), world.rank());
  int64_t largest = 0;
  together(world, [&] { largest = device.backend.largest_batch(graph, options); });
  largest = -maximum_of_ranks(world, -largest);  // every rank takes what fits on all
  if (largest < 1) throw std::runtime_error("out of memory: not even a batch of 1 fits");
  const int64_t indexed = std::max<int64_t>(
      1, std::numeric_limits<int32_t>::max() / device.graph.largest_tensor_elements());
  config.batch = comfortable_batch(largest, indexed);
  fill_defaults(config, device.config.device);
  terminal.remark("batches of up to " + std::to_string(largest) + " fit; taking " +
                  std::to_string(*config.batch) +
                  (indexed < largest ? ", as larger ones have tensors of 2^31 elements" : ""));
}

}  // namespace nearmetal
