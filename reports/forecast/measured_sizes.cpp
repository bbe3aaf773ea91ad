#include "reports/forecast/measured_sizes.h"

#include <algorithm>
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
constexpr double usual_deviation = 0.01;
constexpr double least_deviation = 0.002;

double number_of(const SetRun& run, const char* field) {
  return std::strtod(key_value(run, field).c_str(), nullptr);
}

int64_t ranks_of_a_host(const SetRun& run) {
  std::map<int64_t, int64_t> ranks;
  for (const Rank& rank : run.run.ranks) ++ranks[rank.environment];
  int64_t most = 0;
  for (const auto& [host, count] : ranks) most = std::max(most, count);
  return most;
}

bool can_count(const RunArm& arm, const SetRun& run) {
  const bool exchanges = key_value(run, "update") != to_string(Update::independent);
  const bool trains =
      key_value(run, "forward_only") != "yes" && key_value(run, "inference") != "yes";
  return run.run.world_size >= 1 && arm.whole.empty() && key_value(run, "share").empty() &&
         run.run.jobs.empty() && !run.run.pipeline && trains &&
         (run.run.world_size == 1 || exchanges);
}

MeasuredSize size_of(const RunArm& arm, const SomeRuns& runs) {
  const SetRun& run = *runs.front();
  MeasuredSize size{.arm = &arm,
                    .runs = runs,
                    .ranks = run.run.world_size,
                    .per_host = ranks_of_a_host(run),
                    .batch = number_of(run, "batch"),
                    .throughput = geometric_mean(
                        transformed(runs, [](const SetRun* one) { return *one->run.throughput; }))};
  if (size.batch == 0) {
    size.batch = number_of(run, "global_batch_size") / static_cast<double>(size.ranks);
  }
  size.accumulate = std::max<int64_t>(1, std::llround(number_of(run, "accumulate")));
  return size;
}

// The work of a run without what `left_out` names and what follows from a batch.
std::string work_text(const SetRun& run, const std::vector<std::string>& left_out) {
  std::string text;
  for (const KeyField& field : run.key) {
    const bool follows = !left_out.empty() && follows_batch(field.name);
    if (field.severity == Severity::layout || field.may_be_unknown || follows) continue;
    if (std::ranges::count(left_out, field.name) == 0)
      text += field.name + '\0' + field.value + '\0';
  }
  return text;
}

using Groups = std::map<std::string, std::vector<MeasuredSize>>;

int64_t numbers_of_ranks(const std::vector<MeasuredSize>& sizes) {
  std::set<int64_t> ranks;
  for (const MeasuredSize& size : sizes) ranks.insert(size.ranks);
  return std::ssize(ranks);
}

Groups groups_of(const std::vector<MeasuredSize>& sizes, const std::vector<std::string>& left_out) {
  Groups groups;
  for (const MeasuredSize& size : sizes) {
    groups[work_text(*size.runs.front(), left_out)].push_back(size);
  }
  std::erase_if(groups, [](const auto& group) { return numbers_of_ranks(group.second) < 2; });
  return groups;
}

int64_t most_numbers_of_ranks(const Groups& groups) {
  int64_t most = 0;
  for (const auto& [work, sizes] : groups) most = std::max(most, numbers_of_ranks(sizes));
  return most;
}

void set_deviation(MeasuredSizes& found) {
  double squares = 0, freedom = 0;
  for (const MeasuredSize& size : found.sizes) {
    if (size.runs.size() < 2) continue;
    const std::vector<double> logs =
        transformed(size.runs, [](const SetRun* run) { return std::log(*run->run.throughput); });
    squares += variance(logs) * static_cast<double>(logs.size() - 1);
    freedom += static_cast<double>(logs.size() - 1);
  }
  found.deviation_is_known = freedom > 0;
  found.deviation =
      freedom > 0 ? std::max(least_deviation, std::sqrt(squares / freedom)) : usual_deviation;
}

std::string sizes_text(const std::vector<MeasuredSize>& sizes) {
  std::vector<std::string> texts;
  for (const MeasuredSize& size : sizes) {
    texts.push_back(size.arm->name + " (" + counted(size.ranks, "rank") +
                    (size.batch > 0 ? ", batch " + shortest(size.batch, 10) : "") + ")");
  }
  return texts.empty() ? "none" : shortened(joined(texts));
}

}  // namespace

MeasuredSizes measured_sizes(const RunSet& set, const std::optional<int64_t>& batch) {
  std::vector<MeasuredSize> all;
  for (const RunArm& arm : set.arms) {
    std::map<std::pair<int64_t, std::string>, SomeRuns> alike;  // one arm, where a user named it
    for (const SetRun& run : arm.runs) {
      if (!has_throughput(run) || !can_count(arm, run)) continue;
      alike[{run.run.world_size, work_text(run, {})}].push_back(&run);
    }
    for (const auto& [work, runs] : alike) all.push_back(size_of(arm, runs));
  }
  std::ranges::stable_sort(all, {}, &MeasuredSize::ranks);
  std::vector<MeasuredSize> of_batch = all;
  if (batch) {
    std::erase_if(of_batch, [&](const MeasuredSize& size) {
      return size.batch != static_cast<double>(*batch);
    });
  }
  // Published results name each size of a system by itself.
  const std::vector<std::string> batches = {"batch", "accumulate", "global_batch_size"};
  std::vector<std::string> and_systems = batches;
  and_systems.emplace_back("system");
  MeasuredSizes found;
  Groups groups = groups_of(of_batch, {});
  for (const auto& left_out : {batches, and_systems}) {
    // Published results have no sums that would be those of one batch, so that more sizes are
    // better.
    const bool published = !all.empty() && is_imported(*all.front().runs.front());
    if (!groups.empty() && !published) break;
    Groups more = groups_of(all, left_out);
    if (most_numbers_of_ranks(more) > most_numbers_of_ranks(groups)) groups = std::move(more);
  }
  if (groups.empty()) {
    throw std::invalid_argument(
        "a forecast needs two numbers of ranks or more that did the same work; there are: " +
        sizes_text(all));
  }
  if (groups.size() > 1) {
    std::vector<std::string> texts;
    for (const auto& [work, sizes] : groups) texts.push_back(sizes_text(sizes));
    throw std::invalid_argument(
        "a forecast is of one work, and these differ in theirs; name arms as FILE#ARM, or "
        "--batch: " +
        joined(texts, " | "));
  }
  found.sizes = std::move(groups.begin()->second);
  const bool tells_batch = std::ranges::count(found.sizes, 0, &MeasuredSize::batch) == 0;
  for (MeasuredSize& size : found.sizes) size.batch *= tells_batch ? 1 : 0;
  const MeasuredSize& first = found.sizes.front();
  found.same_batch = std::ranges::all_of(found.sizes, [&](const MeasuredSize& size) {
    return size.batch == first.batch && size.accumulate == first.accumulate;
  });
  found.tells_accumulate = std::ranges::all_of(found.sizes, [](const MeasuredSize& size) {
    const SetRun& run = *size.runs.front();
    return !is_imported(run) || !key_value(run, "accumulate").empty();
  });
  set_deviation(found);
  return found;
}

}  // namespace nearmetal
