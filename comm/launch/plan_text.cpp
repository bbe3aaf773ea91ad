#include "comm/launch/plan_text.h"

#include "comm/layout/shell_text.h"
#include "reports/sharing/fraction_tables.h"
#include "reports/text/text.h"
#include "reports/text/text_table.h"

namespace nearmetal {
namespace {

std::string gpu_text(const PlacedRank& rank) {
  if (!rank.gpu) return "none";
  if (!rank.mig) return std::to_string(*rank.gpu);
  const std::string& profile = rank.mig->profile;
  return std::to_string(*rank.gpu) + ": " + (profile.empty() ? "MIG" : profile) + " " +
         rank.mig->uuid;
}

TextTable table_of(const Placement& placement) {
  const bool emulated = placement.kind == Kind::emulated;
  TextTable table;
  table.columns = {{"job", true}, {"rank", true}, {"host"}};
  if (emulated) table.columns.push_back({"VM", true});
  table.columns.insert(table.columns.end(), {{"GPU", true}, {"CPUs"}});
  for (size_t job = 0; job < placement.jobs.size(); ++job) {
    for (const PlacedRank& rank : placement.jobs[job].ranks) {
      std::vector<std::string> row = {std::to_string(job + 1), std::to_string(rank.rank),
                                      rank.host};
      if (emulated) row.push_back(std::to_string(*rank.vm));
      row.push_back(gpu_text(rank));
      row.push_back(rank.cpus.empty() ? "all" : rank.cpus);
      table.rows.push_back(row);
    }
  }
  return table;
}

const char* relation_of_jobs(const Placement& placement) {
  if (!placement.share()) return " at once, ";
  if (placement.share()->way == SharingMode::serial) return " one after another, ";
  if (placement.share()->way == SharingMode::mig) return " at once on MIG devices of their own, ";
  if (placement.share()->way == SharingMode::vgpu) return " at once on the vGPUs of their VMs, ";
  if (placement.share()->way == SharingMode::sm)
    return " at once on multiprocessors of their own, ";
  return placement.share()->way == SharingMode::mps ? " at once through an MPS daemon, "
                                                    : " at once in time slices, ";
}

void print_layout(std::ostream& out, const LaunchPlan& plan, size_t index) {
  const Placement& placement = plan.placements[index];
  const auto jobs = static_cast<int64_t>(placement.jobs.size());
  out << "layout " << printable(placement.layout) << ": " << to_string(placement.kind) << ", "
      << counted(jobs, "job") << (jobs > 1 ? relation_of_jobs(placement) : ", ")
      << counted(placement.ranks(), "rank") << "\n";
  print_aligned(out, table_of(placement));
  for (const auto& command : commands_of(plan, index)) {
    out << "\n  " << printable(shell_quoted(command)) << "\n";
  }
  out << "\n";
}

void print_order(std::ostream& out, const LaunchPlan& plan) {
  out << counted(static_cast<int64_t>(plan.launches.size()), "fresh start") << ", in this order";
  if (plan.file.order == Order::randomised) out << " (random, seed " << plan.file.seed << ")";
  int64_t repeat = 0;
  for (const Launch& launch : plan.launches) {
    if (launch.repeat != repeat) {
      repeat = launch.repeat;
      out << "\n  repeat " << repeat << ": ";
    } else {
      out << ", ";
    }
    out << printable(plan.placements[launch.layout].layout);
  }
  const TimeLimits& limits = plan.file.limits;
  out << "\nlimits: start " << limits.start_seconds << " s, step " << limits.step_seconds
      << " s, job " << limits.job_seconds << " s\n";
}

}  // namespace

void print_plan(std::ostream& out, const LaunchPlan& plan) {
  for (size_t i = 0; i < plan.placements.size(); ++i) print_layout(out, plan, i);
  for (const UnsupportedArm& arm : plan.unsupported) out << unsupported_text(arm) << "\n";
  print_order(out, plan);
  out << "`nearmetal sweep` starts these and gives them orders; what runs by hand: --format sh\n";
}

}  // namespace nearmetal
