// Sets of CPUs, written as the kernel and taskset do: "0-3,8".
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace nearmetal {

/// The CPUs in ascending order, each once. Throws std::invalid_argument for what is no such list,
/// holds a CPU twice, or one above 65535.
std::vector<int64_t> parse_cpu_list(const std::string& text);

/// The shortest text; `cpus` in ascending order.
std::string to_cpu_list(const std::vector<int64_t>& cpus);

/// The part of `index` of `parts` nearly equal ones, neighbours together; the first are larger by
/// one where it does not come out even.
std::vector<int64_t> part_of(const std::vector<int64_t>& cpus, int64_t index, int64_t parts);

}  // namespace nearmetal
