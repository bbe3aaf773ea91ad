#include "reports/document/steps.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <vector>

namespace nearmetal {
namespace {

constexpr size_t most_bins = 1000;

// The values in stretches of equal length; `first` begins one.
std::vector<Bin> bins_of(std::span<const double> values, size_t first) {
  std::vector<Bin> bins;
  const size_t length = (values.size() + most_bins - 1) / most_bins;
  for (size_t begin = 0; begin < values.size();) {
    size_t end = std::min(begin + length, values.size());
    if (begin < first) end = std::min(end, first);
    const auto stretch = values.subspan(begin, end - begin);
    const auto [least, largest] = std::ranges::minmax(stretch);
    bins.push_back({.count = std::ssize(stretch),
                    .sum = std::accumulate(stretch.begin(), stretch.end(), 0.0),
                    .least = least,
                    .largest = largest});
    begin = end;
  }
  return bins;
}

// The first step of the window of a rank, and how many follow.
std::pair<std::optional<int64_t>, std::optional<int64_t>> window_of(const Run& run, size_t rank) {
  if (!run.window) return {};
  std::optional<int64_t> first = run.window->first_step, count = run.window->steps;
  auto ranks = static_cast<int64_t>(rank);
  for (const ConcurrentJob& job : run.jobs) {
    first = job.first_step;
    count = job.steps;
    ranks -= job.ranks;
    if (ranks < 0) break;
  }
  const std::optional<int64_t>& own = run.ranks[rank].window_first_step;
  if (own) return {own, steps_taken(run.ranks[rank]) - *own};
  return {first, count};
}

// Calls visit(steps, seconds) for each step of the window, or all of a bin, in their order.
template <class Visit>
void visit_window(const Rank& rank, int64_t first_step, const Visit& visit) {
  const int64_t first = rank.window_first_step.value_or(first_step);
  int64_t done = 0;
  for (const Bin& bin : rank.step_seconds_bins) {
    if (done >= first) visit(static_cast<double>(bin.count), bin.sum);
    done += bin.count;
  }
  for (auto i = static_cast<size_t>(first); i < rank.step_seconds.size(); ++i) {
    visit(1.0, rank.step_seconds[i]);
  }
}

// The value that has this place among all, of values with their counts.
double at_place(std::vector<std::pair<double, int64_t>> values, double place) {
  std::ranges::sort(values);
  for (const auto& [value, count] : values) {
    place -= static_cast<double>(count);
    if (place < 0) return value;
  }
  return values.back().first;
}

template <class Visit>
void visit_ranks(Report& report, const Visit& visit) {
  for (Arm& arm : report.arms) {
    for (Run& run : arm.runs) {
      for (size_t i = 0; i < run.ranks.size(); ++i) visit(run, i);
    }
  }
}

}  // namespace

void bin_long_lists(Report& report, int64_t parts) {
  int64_t most = 2 * most_listed_steps, listed = 0;
  do {
    most /= 2;
    listed = 0;
    visit_ranks(report, [&](const Run& run, size_t rank) {
      const int64_t steps = std::ssize(run.ranks[rank].step_seconds);
      if (steps <= most) listed += steps;
    });
  } while (listed > most_listed_steps_of_report / parts);
  visit_ranks(report, [&](Run& run, size_t i) {
    Rank& rank = run.ranks[i];
    if (std::ssize(rank.step_seconds) <= most) return;
    const auto first =
        static_cast<size_t>(std::max<int64_t>(window_of(run, i).first.value_or(0), 0));
    rank.step_seconds_bins = bins_of(std::exchange(rank.step_seconds, {}), first);
    rank.loss_bins = bins_of(std::exchange(rank.loss, {}), first);
  });
}

int64_t steps_taken(const Rank& rank) {
  int64_t steps = std::ssize(rank.step_seconds);
  for (const Bin& bin : rank.step_seconds_bins) steps += bin.count;
  return steps;
}

std::span<const double> window_steps(const Run& run, size_t rank) {
  const auto [first, count] = window_of(run, rank);
  const std::span<const double> all = run.ranks[rank].step_seconds;
  if (!first || !count || *first >= std::ssize(all)) return {};
  return all.subspan(*first, std::min<int64_t>(*count, std::ssize(all) - *first));
}

std::span<const Bin> window_bins(const Run& run, size_t rank) {
  const std::span<const Bin> all = run.ranks[rank].step_seconds_bins;
  const std::optional<int64_t> first = window_of(run, rank).first;
  if (!first) return {};
  int64_t done = 0;
  size_t begin = 0;
  for (; begin < all.size() && done < *first; ++begin) done += all[begin].count;
  return all.subspan(begin);
}

std::pair<double, double> quantile_range(std::span<const Bin> bins, double share) {
  std::vector<std::pair<double, int64_t>> least, largest;
  int64_t count = 0;
  for (const Bin& bin : bins) {
    least.emplace_back(bin.least, bin.count);
    largest.emplace_back(bin.largest, bin.count);
    count += bin.count;
  }
  const double place = share * static_cast<double>(count - 1);
  return {at_place(std::move(least), std::floor(place)),
          at_place(std::move(largest), std::ceil(place))};
}

TimeSpan within_windows(std::span<const Rank> ranks, int64_t first_step, TimeSpan time) {
  for (const Rank& rank : ranks) {
    const double begin = rank.window_start_unix_seconds.value_or(INFINITY);
    double length = 0;
    visit_window(rank, first_step, [&](double, double seconds) { length += seconds; });
    time.begin = std::max(time.begin, begin);
    time.end = std::min(time.end, begin + length);
  }
  return time;
}

double steps_within(std::span<const Rank> ranks, int64_t first_step, const TimeSpan& time) {
  double within = 0;
  for (const Rank& rank : ranks) {
    // Since its start: Unix times leave 0.2 us for digits, which add up over a million steps.
    const double start = rank.window_start_unix_seconds.value_or(INFINITY);
    double begin = 0;
    visit_window(rank, first_step, [&](double steps, double seconds) {
      const double end = begin + seconds;
      const double overlap = std::min(end, time.end - start) - std::max(begin, time.begin - start);
      within += steps * std::clamp(overlap / seconds, 0.0, 1.0);
      begin = end;
    });
  }
  return within;
}

}  // namespace nearmetal
