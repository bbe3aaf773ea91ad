#include "reports/sharing/references.h"

#include <algorithm>
#include <set>

#include "reports/compare/grid_curves.h"
#include "reports/sharing/arm_figures.h"

namespace nearmetal {
namespace {

bool counts(const RunArm& arm) { return arm.share && !timed_runs(arm).empty(); }

// The whole of which this is the first job; null: none.
const RunArm* begun_whole(const RunSet& set, const RunArm& arm) {
  const auto first = std::ranges::find(set.arms, arm.whole, &RunArm::whole);
  const auto whole = std::ranges::find(set.wholes, arm.whole, &RunArm::name);
  return !arm.whole.empty() && &*first == &arm && whole != set.wholes.end() ? &*whole : nullptr;
}

// A failed run may not tell of what it ran on.
const SetRun& first_timed(const RunArm& arm) {
  const Run* timed = timed_runs(arm).front();
  return *std::ranges::find_if(arm.runs, [&](const SetRun& run) { return &run.run == timed; });
}

}  // namespace

References::References(const RunSet& set, bool any_batch) : set_(set), any_batch_(any_batch) {
  for (const RunArm& arm : set.arms) {
    const RunArm* whole = begun_whole(set, arm);
    const RunArm& asked = whole != nullptr ? *whole : arm;
    if (counts(asked)) arms_.push_back(&asked);
  }
}

std::vector<const RunArm*> References::unlike_jobs_of(const RunArm& arm) const {
  std::vector<const RunArm*> jobs;
  for (const RunArm& job : set_.arms) {
    if (job.whole == arm.name) jobs.push_back(&job);
  }
  return jobs;
}

bool References::same_context(const RunArm& a, const RunArm& b) const {
  return context_of(a) == context_of(b);
}

const RunArm* References::find(const RunArm& arm, const Wanted& wanted) const {
  return find_in(context_of(arm), wanted);
}

const RunArm* References::find_in(const std::string& context, const Wanted& wanted) const {
  for (const RunArm* other : arms_) {
    if (!other->share->neighbours.empty() || is_on_a_part(*other)) continue;
    if (wanted(*other->share) && context_of(*other) == context) return other;
  }
  return nullptr;
}

std::vector<const RunArm*> References::alone_where(
    const RunArm& arm, const std::function<bool(const ArmShare&, size_t job)>& wanted) const {
  const std::vector<const RunArm*> unlike = unlike_jobs_of(arm);
  std::vector<const RunArm*> found;
  for (size_t job = 0; job < static_cast<size_t>(arm.share->jobs); ++job) {
    const RunArm& asked = job < unlike.size() ? *unlike[job] : arm;
    found.push_back(find_in(context_of(asked, *arm.share),
                            [&](const ArmShare& share) { return wanted(share, job); }));
  }
  return found;
}

std::vector<const RunArm*> References::alone(const RunArm& arm) const {
  return alone_where(
      arm, [](const ArmShare& share, size_t) { return share.mode == SharingMode::alone; });
}

std::vector<const RunArm*> References::alone_on_shares(const RunArm& arm) const {
  const ArmShare& own = *arm.share;
  if (own.mode == SharingMode::timeslice || own.mode == SharingMode::serial) return alone(arm);
  return alone_where(arm, [&](const ArmShare& share, size_t job) {
    if (share.mode != own.mode || share.jobs != 1) return false;
    if (job < own.profiles.size()) return share.profiles == std::vector{own.profiles[job]};
    return job < own.threads_percent.size() &&
           share.threads_percent == std::vector{own.threads_percent[job]};
  });
}

// A job among unlike ones has its own context, so that it is that of the same job alone.
std::string References::context_of(const RunArm& arm, const ArmShare& share) const {
  const SetRun& run = first_timed(arm);
  std::vector<KeyField> key = run.own_key.empty() ? run.key : run.own_key;
  if (any_batch_) {
    std::erase_if(key, [](const KeyField& field) {
      return field.name == "batch" || follows_batch(field.name);
    });
  }
  return arm.group + '\0' + combination_text(arm, any_batch_) + context_sha256(key) +
         boards_of(arm, share) + ranks_of_jobs(arm);
}

// A job of two ranks is no faster than one of one because it shares less.
std::string References::ranks_of_jobs(const RunArm& arm) const {
  const Run& run = first_timed(arm).run;
  std::set<int64_t> ranks;
  for (const ConcurrentJob& job : run.jobs) ranks.insert(job.ranks);
  if (run.jobs.empty()) ranks.insert(run.world_size);
  std::string text;
  for (const int64_t count : ranks) text += '\0' + std::to_string(count);
  return text;
}

// The key has their chips alone. A MIG device is part of its board where jobs share by MIG; a vGPU
// is none of a board that is not divided like it.
std::string References::boards_of(const RunArm& arm, const ArmShare& share) const {
  std::set<std::string> boards;
  for (const Rank& rank : first_timed(arm).run.ranks) {
    const Gpu* gpu = gpu_of(set_, rank);
    if (gpu == nullptr) continue;
    boards.insert((share.mode == SharingMode::mig ? gpu_board(gpu->name) : gpu->name) + '\0' +
                  gpu->vgpu_profile.value.value_or(""));
  }
  std::string text;
  for (const std::string& board : boards) text += '\0' + board;
  return text;
}

// Whether it was not by MIG, and had a MIG device in place of the GPU: where MIG is on, CUDA shows
// no more than the first. Reports of old tell it by the name alone.
bool References::is_on_a_part(const RunArm& arm) const {
  if (arm.share->mode == SharingMode::mig) return false;
  const std::vector<Rank>& ranks = arm.runs.front().run.ranks;
  return std::ranges::any_of(ranks, [&](const Rank& rank) {
    const Gpu* gpu = gpu_of(set_, rank);
    return gpu != nullptr && (gpu->mig_profile || gpu_board(gpu->name) != gpu->name);
  });
}

}  // namespace nearmetal
