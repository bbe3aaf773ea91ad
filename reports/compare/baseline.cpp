#include "reports/compare/baseline.h"

#include <algorithm>
#include <limits>
#include <map>
#include <span>
#include <stdexcept>

#include "models/errors.h"
#include "reports/files/atomic_file.h"
#include "reports/files/sha256.h"
#include "reports/json/report_files.h"
#include "reports/text/text.h"

namespace nearmetal {
namespace {

namespace fs = std::filesystem;

constexpr size_t hash_digits = 12;

bool is_name(const std::string& name) {
  const auto is_plain = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_' || c == '.';
  };
  const bool plain = std::ranges::all_of(name, is_plain);
  return !name.empty() && plain && name.front() != '.' && name.front() != '-';
}

void require_name(const std::string& name) {
  if (is_name(name)) return;
  throw std::invalid_argument("'" + name +
                              "' is no name of a baseline: letters, digits, -, _ and "
                              "., and not - or . first");
}

bool has_complete_run(const Report& report) {
  return std::ranges::any_of(report.arms, [](const Arm& arm) {
    return std::ranges::any_of(arm.runs,
                               [](const Run& run) { return run.status == Status::complete; });
  });
}

std::vector<KeyField> context_of(const std::vector<KeyField>& key) {
  std::vector<KeyField> context = key;
  std::erase_if(context, [](const KeyField& field) { return field.severity == Severity::layout; });
  return context;
}

const SetRun* first_run(const RunSet& set) {
  for (const RunArm& arm : set.arms) {
    if (!arm.runs.empty()) return &arm.runs.front();
  }
  return nullptr;
}

// The context in the history that is nearest to the wanted one.
std::vector<KeyField> nearest_context(const RunSet& history, const std::vector<KeyField>& wanted) {
  std::vector<KeyField> nearest;
  size_t fewest = std::numeric_limits<size_t>::max();
  for (const RunArm& arm : history.arms) {
    for (const SetRun& run : arm.runs) {
      const std::vector<KeyField> context = context_of(run.key);
      const size_t differences = key_differences(context, wanted).size();
      if (differences > fewest) continue;  // the latest of equals, as it tells the most
      fewest = differences;
      nearest = context;
    }
  }
  return nearest;
}

using Runs = std::vector<const SetRun*>;

// The runs of an arm in that context, in order of their start.
Runs runs_of(const RunArm& arm, const std::vector<KeyField>& context, const std::string& since) {
  Runs runs;
  for (const SetRun& run : arm.runs) {
    const bool same = key_differences(context, context_of(run.key)).empty();
    if (run.run.started_at >= since && same) runs.push_back(&run);
  }
  std::ranges::stable_sort(runs, {}, [](const SetRun* run) { return run->run.started_at; });
  return runs;
}

// The first sessions with enough runs; none where these are all there are.
Runs anchor_of(const Runs& runs, const BaselineWindow& window) {
  Runs anchor;
  int64_t complete = 0;
  for (const SetRun* run : runs) {
    const bool enough = complete >= window.anchor_runs;
    if (enough && run->session != anchor.back()->session) return anchor;
    anchor.push_back(run);
    complete += run->run.status == Status::complete ? 1 : 0;
  }
  return {};
}

// FINGERPRINT/TIME-HASH.json.
fs::path place_of_copy(const ReportText& copied) {
  const Report report = read_report(copied);
  RunSet set;
  add_runs(set, report, copied.source);
  require_none_imported(set, "a baseline keeps runs of nearmetal alone");
  if (!has_complete_run(report)) throw InvalidReport(copied.source + " holds no complete run");
  std::string time = report.invocation.started_at;
  std::erase(time, ':');
  return fs::path(context_sha256(first_run(set)->key).substr(0, hash_digits)) /
         (time + "-" + sha256(copied.text).substr(0, hash_digits) + ".json");
}

// Nothing else has the hash of its own text in its name.
bool is_copy(const fs::path& file) {
  return file.extension() == ".json" &&
         file.stem().string().ends_with("-" + sha256(file_text(file)).substr(0, hash_digits));
}

std::string contents_of(const fs::path& folder) {
  const std::vector<std::string> names = baseline_names(folder);
  return (folder / "").string() + " holds " + (names.empty() ? "none" : joined(names));
}

}  // namespace

BaselineCopies add_to_baseline(const fs::path& folder, const std::string& name,
                               const std::vector<std::string>& reports, bool skip_existing) {
  require_name(name);
  BaselineCopies copies;
  std::map<fs::path, std::string> texts;
  for (const std::string& file : reports) {
    for (const ReportText& report : report_texts(file)) {
      const fs::path target = folder / name / place_of_copy(report);
      const bool there = fs::exists(target);
      if (there && !skip_existing) {
        throw std::invalid_argument(report.source + " is in the baseline already: " +
                                    target.string() + "; --skip-existing adds the others");
      }
      if (there) copies.left.push_back(target);
      if (!there) texts[target] = report.text;
    }
  }
  for (const auto& [target, text] : texts) {
    std::error_code ignored;  // writing says what is wrong
    fs::create_directories(target.parent_path(), ignored);
    write_file_atomically(target, text, false);
    copies.changed.push_back(target);
  }
  return copies;
}

BaselineCopies remove_from_baseline(const fs::path& folder, const std::string& name,
                                    const std::vector<std::string>& reports) {
  require_name(name);
  const fs::path baseline = folder / name;
  std::error_code error;
  if (!fs::is_directory(baseline, error)) {
    throw InvalidReport("there is no baseline " + name + "; " + contents_of(folder));
  }
  BaselineCopies copies;
  for (const std::string& file : reports) {
    for (const ReportText& report : report_texts(file)) {
      const fs::path copy = baseline / place_of_copy(report);
      if (!fs::exists(copy)) {
        throw std::invalid_argument(report.source + " is not in the baseline " + name);
      }
      copies.changed.push_back(copy);
    }
  }
  for (const auto& entry : fs::recursive_directory_iterator(baseline)) {
    if (!reports.empty() || entry.is_directory()) continue;
    (is_copy(entry.path()) ? copies.changed : copies.left).push_back(entry.path());
  }
  for (auto* paths : {&copies.changed, &copies.left}) std::ranges::sort(*paths);
  for (const fs::path& copy : copies.changed) {
    if (!fs::remove(copy, error) && error) {
      throw OutputError("cannot remove " + copy.string() + ": " + error.message());
    }
    fs::remove(copy.parent_path(), error);  // fails as long as it holds others
  }
  fs::remove(baseline, error);
  return copies;
}

std::vector<std::string> baseline_names(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(folder, none)) {
    if (entry.is_directory()) names.push_back(entry.path().filename().string());
  }
  std::ranges::sort(names);
  return names;
}

std::string place_of_baseline(const fs::path& folder, const std::string& place) {
  std::error_code ignored;
  const fs::path named = folder / place;
  if (is_name(place) && fs::is_directory(named, ignored)) return named.string();
  const bool is_input = place == "-" || place.find('#') != place.npos;
  if (is_input || fs::exists(place, ignored)) return place;
  throw InvalidReport(place + " is neither a report, a folder nor a baseline; " +
                      contents_of(folder) + " (`nearmetal baseline add` makes one)");
}

Baseline matching_runs(const RunSet& history, const RunSet& next, const BaselineWindow& window) {
  const SetRun* first = first_run(next);
  if (first == nullptr) return {history};
  const std::vector<KeyField> context = nearest_context(history, context_of(first->key));
  Baseline matching;
  for (const RunArm& arm : history.arms) {
    const Runs runs = runs_of(arm, context, window.since);
    const auto add = [&](RunSet& set, std::span<const SetRun* const> chosen) {
      for (const SetRun* run : chosen) add_run(set, arm.name, *run, history.environments);
    };
    add(matching.recent, std::span(runs).last(std::min<size_t>(runs.size(), window.recent_runs)));
    add(matching.anchor, anchor_of(runs, window));
  }
  return matching;
}

}  // namespace nearmetal
