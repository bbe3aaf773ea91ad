#include "reports/forecast/measured_sizes.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <map>
#include <set>
#include <stdexcept>

#include "base/text.h"
#include "reports/compare/comparison_row.h"
#include "reports/compare/work_text.h"
#include "reports/statistics/statistics.h"

namespace nearmetal {
namespace {

// Public results of one run differ by about as much from the next run (docs/imported.md).
constexpr double usual_deviation = 0.01, least_deviation = 0.002;

double number_of(const SetRun& run, const char* field) {
  return std::strtod(key_value(run, field).c_str(), nullptr);
}

bool can_count(const RunArm& arm, const SetRun& run) {
  const auto is = [&](const char* field, const char* value) {
    return key_value(run, field) == value;
  };
  const bool alone = is("update", to_string(Update::independent)) && run.run.world_size > 1;
  return has_throughput(run) && run.run.world_size >= 1 && arm.whole.empty() && is("share", "") &&
         run.run.jobs.empty() && !run.run.pipeline && !is("forward_only", "yes") &&
         !is("inference", "yes") && !alone;
}

MeasuredSize size_of(const RunArm& arm, const SomeRuns& runs) {
  const SetRun& run = *runs.front();
  MeasuredSize size{{.ranks = run.run.world_size}, arm.name, runs};
  std::map<int64_t, int64_t> ranks;  // of each host
  for (const Rank& rank : run.run.ranks) {
    size.per_host = std::max(size.per_host, ++ranks[rank.environment]);
  }
  size.batch = number_of(run, "batch");
  if (size.batch == 0) {
    size.batch = number_of(run, "global_batch_size") / static_cast<double>(size.ranks);
  }
  size.accumulate = std::max<int64_t>(1, std::llround(number_of(run, "accumulate")));
  size.throughput =
      geometric_mean(transformed(runs, [](const SetRun* one) { return *one->run.throughput; }));
  return size;
}

using Work = std::map<std::string, std::string>;
using SizesByWork = std::map<Work, std::vector<MeasuredSize>>;

int64_t numbers_of_ranks(const std::vector<MeasuredSize>& sizes) {
  const std::vector<int64_t> ranks = transformed(sizes, &MeasuredSize::ranks);
  return std::ssize(std::set(ranks.begin(), ranks.end()));
}

// Those of two numbers of ranks or more, of one batch or of any, and of one system or of any.
SizesByWork groups_of(const std::vector<MeasuredSize>& sizes, bool any_batch, bool any_system) {
  SizesByWork groups;
  for (const MeasuredSize& size : sizes) {
    Work work = work_of_run(*size.runs.front(), any_batch);
    if (any_system) work.erase("system");
    groups[work].push_back(size);
  }
  std::erase_if(groups, [](const auto& group) { return numbers_of_ranks(group.second) < 2; });
  return groups;
}

int64_t most_numbers_of_ranks(const SizesByWork& groups) {
  int64_t most = 0;
  for (const auto& [work, sizes] : groups) most = std::max(most, numbers_of_ranks(sizes));
  return most;
}

double deviation_of(const std::vector<MeasuredSize>& sizes) {
  double squares = 0, freedom = 0;
  for (const MeasuredSize& size : sizes) {
    if (size.runs.size() < 2) continue;
    const auto more = static_cast<double>(size.runs.size() - 1);
    squares += more * variance(transformed(size.runs, [](const SetRun* run) {
                 return std::log(*run->run.throughput);
               }));
    freedom += more;
  }
  return freedom > 0 ? std::max(least_deviation, std::sqrt(squares / freedom)) : usual_deviation;
}

std::string sizes_text(const std::vector<MeasuredSize>& sizes) {
  const auto text = [](const MeasuredSize& size) {
    return size.arm + " (" + counted(size.ranks, "rank") +
           (size.batch > 0 ? ", batch " + shortest(size.batch, 10) : "") + ")";
  };
  return sizes.empty() ? "none" : shortened(joined(transformed(sizes, text)));
}

std::vector<MeasuredSize> all_sizes(const RunSet& set) {
  std::vector<MeasuredSize> sizes;
  for (const RunArm& arm : set.arms) {
    std::map<std::pair<int64_t, Work>, SomeRuns> alike;  // in one arm where a user named it
    for (const SetRun& run : arm.runs) {
      if (can_count(arm, run)) alike[{run.run.world_size, work_of_run(run, false)}].push_back(&run);
    }
    for (const auto& [work, runs] : alike) sizes.push_back(size_of(arm, runs));
  }
  std::ranges::stable_sort(sizes, {}, &MeasuredSize::ranks);
  return sizes;
}

}  // namespace

std::map<std::string, std::string> work_of_run(const SetRun& run, bool any_batch) {
  constexpr std::array of_batch = {"batch", "accumulate", "global_batch_size"};
  Work work;
  for (const auto& [name, value, severity, may_be_unknown] : run.key) {
    const bool has_batch = std::ranges::count(of_batch, name) > 0 || follows_batch(name);
    if (severity == Severity::layout || may_be_unknown || (any_batch && has_batch)) continue;
    work[name] = value;
  }
  return work;
}

MeasuredSizes measured_sizes(const RunSet& set, const std::optional<int64_t>& batch) {
  const std::vector<MeasuredSize> all = all_sizes(set);
  std::vector<MeasuredSize> of_batch = all;
  std::erase_if(of_batch, [&](const MeasuredSize& size) {
    return batch && size.batch != static_cast<double>(*batch);
  });
  SizesByWork groups = groups_of(of_batch, false, false);
  // Published results have no sums, which would be those of one batch, so that more sizes are
  // better; and each size of a system may be one by its name.
  const bool published = !all.empty() && is_imported(*all.front().runs.front());
  for (const bool any_system : {false, true}) {
    if (!groups.empty() && !published) break;
    SizesByWork more = groups_of(all, true, any_system);
    if (most_numbers_of_ranks(more) > most_numbers_of_ranks(groups)) groups = std::move(more);
  }
  if (groups.size() != 1) {
    const auto text = [](const auto& group) { return sizes_text(group.second); };
    throw std::invalid_argument(
        groups.empty() ? "a forecast needs two numbers of ranks or more that did the same work; "
                         "there are: " +
                             sizes_text(all)
                       : "a forecast is of one work, and these differ; name arms as FILE#ARM, or "
                         "--batch: " +
                             joined(transformed(groups, text), " | "));
  }
  MeasuredSizes found{.sizes = std::move(groups.begin()->second)};
  const bool tells_batch = std::ranges::count(found.sizes, 0, &MeasuredSize::batch) == 0;
  for (MeasuredSize& size : found.sizes) size.batch *= tells_batch ? 1 : 0;
  found.same_batch = std::ranges::all_of(found.sizes, [&](const MeasuredSize& size) {
    return size.batch == found.sizes[0].batch && size.accumulate == found.sizes[0].accumulate;
  });
  found.deviation = deviation_of(found.sizes);
  return found;
}

}  // namespace nearmetal
