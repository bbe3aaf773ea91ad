// Layouts in short: 1x1x2 is nodes x VMs per node x GPUs per VM, 2*(1x1x2) two such jobs at once.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "comm/layout/layout.h"

namespace nearmetal {

struct JobShape {
  int64_t nodes = 1;
  int64_t vms = 1;   // on each node
  int64_t gpus = 1;  // of each VM; on a host without GPUs: ranks

  int64_t ranks() const { return nodes * vms * gpus; }
  bool operator==(const JobShape&) const = default;
};

/// One shape for each job: terms joined by '+', each "NxVxG" or "(NxVxG)", with "K*" before it for
/// K jobs. Throws std::invalid_argument that says what was expected where. At most 4096 jobs and,
/// in each, 65536 ranks.
std::vector<JobShape> parse_short_form(const std::string& text);

/// Whether the text is meant as a short form and not as the path of a file.
bool looks_like_short_form(const std::string& text);

/// The jobs of `layout.shape`, as if they had been listed; placement.h says which hosts and GPUs
/// they take. Throws std::invalid_argument, beginning with Layout::source, where there are too few.
std::vector<Job> shape_jobs(const Layout& layout, const std::vector<Host>& hosts);

/// `count` of the free GPUs, rising: those with the most pairs that an NVLink connects; of these,
/// where the job is on several hosts (`network`), those nearest to a NIC; else the first. Where
/// nothing is known of their places, the first.
std::vector<int64_t> choose_gpus(const Host& host, const std::vector<int64_t>& free, int64_t count,
                                 bool network);

/// "GPUs 1, 3 of vm0: NVLink connects them all; nearest NIC: mlx5_1 (PIX)"; empty: nothing is known
/// that counts for these.
std::string choice_text(const Host& host, const std::vector<int64_t>& gpus, bool network);

}  // namespace nearmetal
