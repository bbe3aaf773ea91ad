#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <array>
#include <functional>
#include <initializer_list>
#include <iterator>
#include <stdexcept>

#include "bench/cli/command_options.h"
#include "bench/cli/parse_value.h"
#include "bench/cli/suggest.h"

namespace nearmetal {
namespace {

constexpr const char* compare_examples = R"(
Examples:
  nearmetal compare old.json new.json
  nearmetal compare --base old*.json --new new*.json    several runs of each: needed for a verdict
  nearmetal compare sweep.json#1x2 sweep.json#2x1       two arms of one report
  nearmetal compare --bare metal*.json --vm vm*.json    a VM against bare metal

Verdicts, of the interval of the difference: EQUIVALENT within the margin, SLOWER or FASTER beyond
it, else INCONCLUSIVE. Exit 0 whatever the verdict; 4 if runs differ in what must agree or have no
row in common. Of runs with --attribute it also says what the difference comes from.

Metrics: throughput_images_per_second, median_step_seconds, p95_step_seconds, p99_step_seconds,
  set_up_seconds.
Fields, which must agree unless --allow-differ names them: model, device, precision, batch,
  image_size, classes, forward_only, input, launch, zero_init, loss_scale, learning_rate, momentum,
  weight_decay, update, gradient_type, communication, share, ranks_per_job, world_size,
  ranks_per_instance, gpu_chip, cpu_model, threads, libraries, or one of them: libraries.cudnn.)";

constexpr const char* gate_examples = R"(
Examples:
  nearmetal baseline add main old*.json    keep runs, in git with the code
  nearmetal gate main new*.json            exit 1 if new runs are shown to be slower by over 2 %
  nearmetal gate old/ new/ --fail-on not-equivalent --margin 1%

Exit codes: 0 pass, 1 fail, 3 inconclusive or too few runs, 4 not comparable or a row is missing,
  5 a side has no complete run.)";

constexpr const char* baseline_examples = R"(
Examples:
  nearmetal baseline add main run*.json    copies them to baselines/main/; nothing is overwritten
  nearmetal baseline list
  nearmetal baseline show main             its runs, their spread, and what it can find)";

constexpr const char* rerun_examples = R"(
Example:
  nearmetal rerun old.json --runs 5    the recorded configuration again, here, and the difference
  nearmetal rerun sweep.json#1x1x1     of one arm, of one rank

Exit 5 at once where the report has no complete run to hold new ones against. Settings come from
the report; no text of it is executed. The new reports stay in this folder.)";

using Texts = std::vector<std::string>;

// A flag that takes one value; the last one counts.
void add_value(CLI::App* command, const std::string& flag, const char* type, const char* help,
               const std::function<void(const std::string& text)>& set) {
  command->add_option_function<std::string>(flag, set, help)
      ->option_text(type)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
}

// A flag, or FILE..., that takes one or more places of reports.
CLI::Option* add_places(CLI::App* command, const std::string& name, Texts& places,
                        const char* help) {
  const auto take = [name, &places](const Texts& texts) {
    for (const std::string& text : texts) places.push_back(checked_path(name, text));
  };
  return command->add_option_function<Texts>(name, take, help)->option_text("FILE...");
}

// A flag that takes names, and so would take files that come after it.
void add_names(CLI::App* command, const std::string& flag, const char* type, const char* help,
               Texts& names, const std::function<void(const std::string& name)>& check) {
  const auto take = [=, &names](const Texts& given) {
    for (const std::string& name : given) {
      if (name.ends_with(".json") || name.find_first_of("/#") != name.npos) {
        throw std::invalid_argument(flag + " takes names, and '" + name +
                                    "' looks like a file: put " + flag + " after the files");
      }
      check(name);
      names.push_back(name);
    }
  };
  command->add_option_function<Texts>(flag, take, help)->option_text(type);
}

void check_metric(const std::string& name) {
  Texts known;
  for (const Metric& metric : all_metrics()) known.push_back(metric.name);
  require_choice("--metric", name, known);
}

// Comparing says why the kind is never allowed; which libraries there are, only reports tell.
void check_field(const std::string& name) {
  if (name == "kind" || name.starts_with("libraries.")) return;
  require_choice("--allow-differ", name, fields_that_may_differ());
}

void add_rule(CLI::App* command, Judging& judging) {
  CompareOptions& options = judging.options;
  add_value(command, "--margin", "SHARE", "that does not matter, such as 1.5% or 0.015 [2%]",
            [&](const std::string& text) {
              options.rule.margin = parse_share("--margin", text, {0, 0.5, true});
            });
  add_value(command, "--alpha", "SHARE", "chance of each kind of error [5%]",
            [&](const std::string& text) {
              options.rule.alpha = parse_share("--alpha", text, {1e-6, 0.25});
            });
  add_names(command, "--metric", "NAME...", "figures to compare [throughput_images_per_second]",
            options.metrics, check_metric);
  add_names(command, "--allow-differ", "FIELD...", "what may differ all the same (compare --help)",
            options.allow_differ, check_field);
}

void add_output(CLI::App* command, Judging& judging) {
  const auto choose = [](bool& form, bool other) {
    form = true;
    if (other) throw std::invalid_argument("--json and --markdown are two forms; give one of them");
  };
  command->add_flag_callback(
      "--json", [&judging, choose] { choose(judging.json, judging.markdown); },
      "as JSON (nearmetal schema comparison)");
  command->add_flag_callback(
      "--markdown", [&judging, choose] { choose(judging.markdown, judging.json); }, "as Markdown");
}

void add_files(CLI::App* command, Judging& judging) {
  add_value(command, "--html", "FILE", "also write a page with charts",
            [&](const std::string& text) { judging.html = checked_path("--html", text); });
  command->add_flag_callback(
      "--no-charts", [&judging] { judging.charts = false; }, "HTML without gnuplot");
  command->add_flag("--force", judging.force, "replace an existing file");
}

// One FILE of each side; BASE NEW.
void take_both(Judging& judging, const Texts& places) {
  if (places.size() != 2) {
    throw std::invalid_argument("BASE NEW are two reports, not " + std::to_string(places.size()) +
                                "; for several use --base FILE... --new FILE...");
  }
  judging.base = {checked_path("BASE", places[0])};
  judging.next = {checked_path("NEW", places[1])};
}

}  // namespace

CLI::App* add_compare_command(CLI::App& app, CommandLine& line) {
  CLI::App* command = app.add_subcommand("compare", "Compare two sets of runs");
  command->footer(compare_examples);
  Judging& judging = line.judging;
  CLI::Option* both = command->add_option_function<Texts>(
      "BASE NEW", [&](const Texts& places) { take_both(judging, places); }, "Reports");
  both->option_text(" ")->expected(-1);
  CLI::Option* base = add_places(command, "--base", judging.base, "of the base");
  CLI::Option* next = add_places(command, "--new", judging.next, "held against it");
  CLI::Option* bare = add_places(command, "--bare", judging.base, "of bare metal");
  CLI::Option* vm = add_places(command, "--vm", judging.next, "of a VM: lists what differs");
  add_rule(command, judging);
  add_output(command, judging);
  add_files(command, judging);
  command->callback([=, &judging] {
    judging.options.vm_form = bare->count() > 0;
    const auto given = [](const CLI::Option* option) { return option->count() > 0; };
    const auto exactly = [&](std::initializer_list<const CLI::Option*> wanted) {
      const std::array all = {both, base, next, bare, vm};
      return std::all_of(wanted.begin(), wanted.end(), given) &&
             std::count_if(all.begin(), all.end(), given) == std::ssize(wanted);
    };
    if (exactly({both}) || exactly({base, next}) || exactly({bare, vm})) return;
    throw std::invalid_argument(
        "compare takes one of: BASE NEW; --base FILE... --new FILE...; --bare FILE... --vm "
        "FILE...");
  });
  return command;
}

CLI::App* add_gate_command(CLI::App& app, CommandLine& line) {
  CLI::App* command = app.add_subcommand("gate", "Hold new runs against a baseline, by exit code");
  command->footer(gate_examples);
  Judging& judging = line.judging;
  const auto take = [&](const Texts& places) {
    if (places.size() < 2) throw std::invalid_argument("gate takes BASE and one or more of NEW");
    judging.base = {checked_path("BASE", places.front())};
    for (size_t i = 1; i < places.size(); ++i) {
      judging.next.push_back(checked_path("NEW", places[i]));
    }
  };
  command->add_option_function<Texts>("BASE NEW", take, "Baseline, report or folder; reports")
      ->option_text("...")
      ->required();
  add_rule(command, judging);
  add_value(command, "--fail-on", "regression|not-equivalent|any",
            "worse is shown; not worse is not shown; any change [regression]",
            [&](const std::string& text) {
              require_choice("--fail-on", text, {"regression", "not-equivalent", "any"});
              judging.gate.fail_on = text == "regression"       ? FailOn::regression
                                     : text == "not-equivalent" ? FailOn::not_equivalent
                                                                : FailOn::any;
            });
  add_value(command, "--min-runs", "N", "that each side must have [3]",
            [&](const std::string& text) {
              judging.gate.minimum_runs = parse_number<int64_t>("--min-runs", text, {2, 1000});
            });
  command->add_flag_callback(
      "--require-clean", [&judging] { judging.gate.require_clean = true; },
      "exit 4 unless each run's monitor shows it undisturbed");
  add_value(command, "--window", "N", "latest runs of a baseline that count [20]",
            [&](const std::string& text) {
              judging.window = parse_number<int64_t>("--window", text, {2, 100000});
            });
  add_value(command, "--rerun", "MAX", "while inconclusive, repeat NEW here this often at most [0]",
            [&](const std::string& text) {
              judging.reruns = parse_number<int64_t>("--rerun", text, {0, 1000});
            });
  add_value(
      command, "--baselines", "FOLDER", "that holds the baselines [baselines]",
      [&](const std::string& text) { line.baselines_folder = checked_path("--baselines", text); });
  add_output(command, judging);
  add_files(command, judging);
  add_value(command, "--junit", "FILE", "also write the rows as JUnit XML",
            [&](const std::string& text) { judging.junit = checked_path("--junit", text); });
  return command;
}

CLI::App* add_baseline_command(CLI::App& app, CommandLine& line) {
  CLI::App* command = app.add_subcommand("baseline", "Keep runs as a named baseline");
  command->footer(baseline_examples);
  command->callback([command] {
    if (command->get_subcommands().empty() && command->remaining().empty()) {
      throw std::invalid_argument("baseline takes add, list or show (nearmetal baseline --help)");
    }
  });
  BaselineAction& action = line.baseline;
  const auto add_action = [&](const char* name, BaselineAction::Kind kind, const char* help) {
    CLI::App* sub = command->add_subcommand(name, help);
    add_value(sub, "--baselines", "FOLDER", "that holds the baselines [baselines]",
              [&](const std::string& text) {
                line.baselines_folder = checked_path("--baselines", text);
              });
    sub->callback([&action, kind] { action.kind = kind; });
    return sub;
  };
  CLI::App* add = add_action("add", BaselineAction::Kind::add, "Add the runs of reports");
  add->add_option("NAME", action.name, "of the baseline")->required();
  add_places(add, "FILE", action.files, "Reports")->required();
  add_action("list", BaselineAction::Kind::list, "All baselines and their runs");
  CLI::App* show = add_action("show", BaselineAction::Kind::show, "One of them, and its power");
  show->add_option("NAME", action.name, "of the baseline, a report or a folder")->required();
  add_rule(show, line.judging);
  return command;
}

CLI::App* add_rerun_command(CLI::App& app, CommandLine& line) {
  CLI::App* command = app.add_subcommand("rerun", "Repeat a report's configuration and compare");
  command->footer(rerun_examples);
  Judging& judging = line.judging;
  const auto take = [&](const Texts& places) {
    if (places.size() != 1) {
      throw std::invalid_argument("rerun takes one report, not " + std::to_string(places.size()));
    }
    judging.base = {checked_path("REPORT", places.front())};
  };
  command->add_option_function<Texts>("REPORT", take, "Whose configuration to repeat")
      ->option_text("FILE")
      ->required();
  add_value(command, "--runs", "N", "fresh launches [as many as the report has]",
            [&](const std::string& text) {
              judging.reruns = parse_number<int64_t>("--runs", text, {1, 1000});
            });
  add_rule(command, judging);
  add_output(command, judging);
  return command;
}

}  // namespace nearmetal
