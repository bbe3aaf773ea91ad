#include "reports/compare/work_text.h"

#include <algorithm>

#include "base/errors.h"
#include "base/text.h"

namespace nearmetal {
namespace {

// No more than a line can hold.
std::string alternatives(const std::vector<std::string>& values) {
  constexpr size_t most = 4;
  if (values.size() <= most) return joined(values, " | ");
  return joined({values.begin(), values.begin() + most}, " | ") + " | ... (" +
         std::to_string(values.size()) + " in all)";
}

template <class Text>
std::string of_each_run(const RunSet& set, const Text& text_of) {
  std::vector<std::string> found;
  for (const SetRun& run : all_runs(set)) add_new(found, text_of(run));
  return alternatives(found);
}

std::string hosts_of(const RunSet& set) {
  std::vector<std::string> found;
  for (const Environment& environment : set.environments) {
    if (environment.host_name != left_out_name) add_new(found, environment.host_name);
  }
  return alternatives(found);
}

// Such as "batch 64"; empty where none is told.
std::string with_word(const std::string& word, const std::string& value) {
  return value.empty() ? "" : word + " " + value;
}

std::string days_of(const RunSet& set) {
  constexpr size_t length_of_date = 10;
  std::vector<std::string> days;
  for (const SetRun& run : all_runs(set)) {
    const std::string& begun = run.run.started_at;
    if (!begun.empty()) days.push_back(begun.substr(0, length_of_date));
  }
  if (days.empty()) return "";
  const auto [first, last] = std::ranges::minmax_element(days);
  return *first == *last ? *first : *first + " to " + *last;
}

std::string of_key(const RunSet& set, const std::string& field) {
  return of_each_run(set, [&](const SetRun& run) { return key_value(run, field); });
}

// The line of imported results, whose files report some of it.
std::string published_line(const RunSet& set) {
  std::vector<std::string> parts = {
      "imported",
      of_key(set, "round"),
      of_key(set, "model"),
      of_key(set, "benchmark"),
      of_key(set, "collective"),
      of_key(set, "precision"),
      with_word("batch", of_key(set, "batch")),
      with_word("global batch", of_key(set, "global_batch_size")),
      of_each_run(set, [](const SetRun& run) { return run.run.device_name; }),
      days_of(set)};
  std::erase(parts, "");
  return joined(parts);
}

}  // namespace

std::string key_value(const SetRun& run, const std::string& field) {
  return value_in(run.own_key.empty() ? run.key : run.own_key, field);
}

std::string work_value(const SetRun& run, const std::string& field) {
  const std::string value = key_value(run, field);
  const bool left_out = value.empty() && field == "inference";
  return left_out && !key_value(run, "forward_only").empty() ? "no" : value;
}

std::string task_of_run(const SetRun& run) {
  const auto is = [&](const char* setting) { return key_value(run, setting) == "yes"; };
  return key_value(run, "model") + " " + pass_name(is("forward_only"), is("inference"));
}

std::string work_of(const SetRun& run) {
  return task_of_run(run) + ", " + key_value(run, "precision") + ", batch " +
         key_value(run, "batch");
}

std::string task_of(const RunSet& set) { return of_each_run(set, task_of_run); }

std::string work_line(const RunSet& set) {
  if (std::ranges::any_of(set.arms, [](const RunArm& arm) { return is_imported(arm); })) {
    return published_line(set);
  }
  const std::string task = task_of(set);
  if (task.empty()) return "";
  const auto size = [](const SetRun& run) {
    const std::string sequence = key_value(run, "sequence");
    if (!sequence.empty()) return "sequence " + sequence;
    return key_value(run, "image_size") + "x" + key_value(run, "image_size");
  };
  const auto device = [](const SetRun& run) { return run.run.device_name; };
  std::vector<std::string> parts = {task, of_key(set, "precision"), "batch " + of_key(set, "batch"),
                                    of_each_run(set, size), of_each_run(set, device)};
  if (const std::string hosts = hosts_of(set); !hosts.empty()) parts.push_back("host " + hosts);
  parts.push_back(days_of(set));
  return joined(parts);
}

std::vector<std::string> work_lines(const Sides& sides) {
  std::vector<std::string> lines, named;
  for (const auto& [name, set] : sides) {
    const std::string line = work_line(*set);
    if (line.empty()) continue;
    add_new(lines, line);
    named.push_back(name.empty() ? line : name + ": " + line);
  }
  return lines.size() > 1 ? named : lines;
}

std::string different_work(const RunArm& arm) {
  std::vector<std::string> found;
  const SetRun* first = nullptr;
  for (const SetRun* run : complete_runs(arm)) {  // others are in no mean
    if (first == nullptr) first = run;
    for (const KeyDifference& difference : key_differences(first->key, run->key)) {
      add_new(found, difference.name + " " + difference.base + " | " + difference.other);
    }
  }
  return joined(found, "; ");
}

void require_same_work(const RunSet& set) {
  for (const RunArm& arm : set.arms) {
    const std::string differences = different_work(arm);
    if (differences.empty()) continue;
    throw NotComparable("the runs of '" + arm.name + "' did different work, so that their mean " +
                        "says nothing: " + shortened(differences) +
                        "; give those of each work by themselves");
  }
}

}  // namespace nearmetal
