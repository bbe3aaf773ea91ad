#include "bench/run/rank_kernels.h"

#include <algorithm>
#include <string>
#include <utility>

#include "bench/run/together.h"
#include "models/errors.h"
#include "reports/json/kernel_cache.h"
#include "reports/text/text.h"

namespace nearmetal {
namespace {

std::string out_of_memory_text(const OutOfMemory& error) {
  const auto gigabytes = [](int64_t bytes) {
    return significant(1e-9 * static_cast<double>(bytes)) + " GB";
  };
  return "out of memory: " + gigabytes(error.needed_bytes) + " needed, " +
         gigabytes(error.free_bytes) + " free; " +
         (error.largest_batch_size > 0
              ? "the largest batch that fits is " + std::to_string(error.largest_batch_size)
              : std::string("not even a batch of 1 fits"));
}

}  // namespace

void with_memory_hint(const RankTask& task, const std::function<void()>& work) {
  try {
    work();
  } catch (const OutOfMemory& error) {
    const OutOfMemory hint(out_of_memory_text(error), error.needed_bytes, error.free_bytes,
                           error.largest_batch_size);
    if (task.reporter != nullptr) task.reporter->tell(failure_event(hint));
    throw hint;
  }
}

std::vector<KernelChoice> union_of_ranks(World& world, const std::vector<KernelChoice>& own) {
  std::vector<KernelChoice> all;
  for (const std::string& text : world.all_gather(kernel_choices_to_json(own))) {
    for (KernelChoice& choice : kernel_choices_from_json(text)) {
      if (std::ranges::find(all, choice.key, &KernelChoice::key) == all.end()) {
        all.push_back(std::move(choice));
      }
    }
  }
  return all;
}

KernelSource kernels_of_all(const RankTask& task) {
  KernelSource kernels = task.kernels;
  World& world = task.world;
  if (task.config.device != Device::cuda || world.size() == 1) return kernels;
  std::vector<KernelChoice> chosen;
  together(world, [&] {
    if (replica_of(task.config, world.rank()) > 0) return;
    const ProgramOptions options =
        program_options(task.config, kernels, world.size(), world.rank());
    with_memory_hint(task, [&] { chosen = task.backend.choose_kernels(task.part(), options); });
  });
  kernels.known = union_of_ranks(world, chosen);
  kernels.pinned = true;
  return kernels;
}

}  // namespace nearmetal
