// The plans of earlier runs on disk, so that tuning happens once per device, driver, libraries and
// build of this program.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "reports/document/types.h"

namespace nearmetal {

struct DeviceInfo;

/// Plans hold for a context: the device and everything that may change which of them is best or
/// loads at all, this program's own kernels included. One line of text, e.g. "NVIDIA H200, 132
/// multiprocessors, driver 580.1, cuDNN 9.19, nearmetal 0.2.0 build 4f1c".
std::string kernel_choice_context(const DeviceInfo& device, const Tool& tool);

/// $XDG_CACHE_HOME/nearmetal/plans.json, else ~/.cache/nearmetal/plans.json; none without a home.
std::optional<std::filesystem::path> default_kernel_cache_path();

/// Warns where a file that is there is ignored, and why: not of one that is not there, or has
/// nothing for this context.
std::vector<KernelChoice> load_kernel_choices(const std::filesystem::path& path,
                                              const std::string& context,
                                              std::vector<Warning>& warnings);

/// Adds to what is there or replaces it, by key; of other contexts the 15 that were saved last
/// stay. Atomic, and safe with several processes at once (a lock on `path`.lock). Makes the folder.
/// A damaged file is replaced where it begins as a cache, else it stays as it is. Throws
/// OutputError, also where another process holds the lock for so long, with its number.
void save_kernel_choices(const std::filesystem::path& path, const std::string& context,
                         const std::vector<KernelChoice>& plans, double most_lock_seconds = 10);

/// All of each plan as one text, for other processes: its times decide what is fused.
std::string kernel_choices_to_json(const std::vector<KernelChoice>& plans);
/// Throws InvalidReport.
std::vector<KernelChoice> kernel_choices_from_json(const std::string& text);

}  // namespace nearmetal
