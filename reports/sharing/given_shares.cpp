#include "reports/sharing/given_shares.h"

#include <algorithm>
#include <set>
#include <utility>

#include "reports/text/text.h"
#include "reports/text/text_table.h"

namespace nearmetal {
namespace {

// Of each job.
std::vector<const Rank*> first_ranks(const Run& run) {
  std::vector<const Rank*> ranks;
  size_t first = 0;
  for (const ConcurrentJob& job : run.jobs) {
    if (first < run.ranks.size()) ranks.push_back(&run.ranks[first]);
    first += static_cast<size_t>(job.ranks);
  }
  if (run.jobs.empty() && !run.ranks.empty()) ranks.push_back(&run.ranks.front());
  return ranks;
}

std::string text_of(const GivenShare& share) {
  std::string text;
  if (share.threads_percent) {
    text = std::to_string(*share.threads_percent) + " % of the SMs";
  } else if (share.multiprocessors) {
    text = std::to_string(*share.multiprocessors) + " SMs";
  }
  if (!share.memory_bytes) return text.empty() ? "-" : text;
  const std::string memory =
      significant(1e-9 * static_cast<double>(*share.memory_bytes), 3) + " GB";
  return text.empty() ? memory : text + ", " + memory;
}

std::string known(const Maybe<std::string>& value) {
  return value ? *value : "not known here (" + value.reason + ")";
}

}  // namespace

const Gpu* gpu_of(const RunSet& set, const Rank& rank) {
  if (!rank.gpu || rank.environment < 0 || rank.environment >= std::ssize(set.environments)) {
    return nullptr;
  }
  const std::vector<Gpu>& gpus = set.environments[static_cast<size_t>(rank.environment)].gpus;
  return *rank.gpu < std::ssize(gpus) ? &gpus[static_cast<size_t>(*rank.gpu)] : nullptr;
}

std::vector<GivenShare> given_to(const RunSet& set, const ArmShare& share, const Run& run) {
  std::vector<GivenShare> given;
  for (const Rank* rank : first_ranks(run)) {
    const Gpu* gpu = gpu_of(set, *rank);
    if (gpu == nullptr) return {};
    const size_t job = given.size();
    GivenShare& of_job = given.emplace_back();
    of_job.multiprocessors = gpu->multiprocessors;
    of_job.memory_bytes = gpu->memory_bytes;
    // Parts are whole groups of multiprocessors, which the rank has counted.
    const bool by_percent = share.way != SharingMode::sm && job < share.threads_percent.size();
    if (by_percent) of_job.threads_percent = share.threads_percent[job];
    const bool limited = job < share.memory_gib.size() && share.memory_gib[job] > 0;
    if (limited) of_job.memory_bytes = share.memory_gib[job] << 30;
  }
  return given;
}

std::string given_text(const std::vector<GivenShare>& given) {
  std::vector<std::pair<std::string, int64_t>> counts;
  for (const GivenShare& share : given) {
    const std::string text = text_of(share);
    const auto known = std::find_if(counts.begin(), counts.end(),
                                    [&](const auto& count) { return count.first == text; });
    if (known != counts.end()) {
      ++known->second;
    } else {
      counts.emplace_back(text, 1);
    }
  }
  if (counts.empty()) return "-";
  if (counts.size() == 1) return counts.front().first;
  std::vector<std::string> texts;
  for (const auto& [text, count] : counts) {
    texts.push_back(count == 1 ? text : std::to_string(count) + " x " + text);
  }
  return joined(texts, "; ");
}

std::vector<std::string> share_remarks(const RunSet& set) {
  std::set<std::string> remarks;
  for (const RunArm& arm : set.arms) {
    for (const SetRun& run : arm.runs) {
      if (!arm.share || run.run.status != Status::complete) continue;
      for (const Rank& rank : run.run.ranks) {
        const Gpu* gpu = gpu_of(set, rank);
        if (gpu == nullptr || !gpu->vgpu_profile) continue;
        remarks.insert(printable(arm.name + ": on a vGPU " + *gpu->vgpu_profile +
                                 ", licence: " + known(gpu->vgpu_licence) +
                                 ", scheduler: " + known(gpu->vgpu_scheduler)));
      }
    }
  }
  return {remarks.begin(), remarks.end()};
}

}  // namespace nearmetal
