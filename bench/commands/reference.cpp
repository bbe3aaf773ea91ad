#include "bench/commands/reference.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <stdexcept>

#include "base/text.h"
#include "base/text_table.h"
#include "bench/commands/program.h"
#include "models/load_module.h"
#include "reports/compare/baseline.h"
#include "reports/compare/comparison_row.h"
#include "reports/compare/work_text.h"
#include "reports/statistics/statistics.h"

namespace nearmetal {
namespace {

constexpr const char* reference_examples = R"(
Examples:
  nearmetal reference add fleet node*.json    runs of many machines: references/fleet.json, for git
  nearmetal compare run*.json --reference fleet   is this machine as fast as those?
  nearmetal gate run*.json --reference fleet      exit 1 if it is slower than 95 % of them
  nearmetal reference list
  nearmetal reference show fleet              its machines, and each against the others

A reference holds throughputs and what monitors saw, no names of hosts. It takes 3 machines; a card
that is passed to another VM each day is one machine.)";

struct ReferenceForm {
  std::string folder = "references";
  std::string name;
  std::vector<std::string> files;
};

void add_references_option(Options& options, std::string& folder) {
  options.path("--references", "FOLDER", folder, "folder that holds the references [references]");
}

// The references of that folder and those that are installed with the program.
std::vector<Reference> known_references(const std::string& folder) {
  std::vector<Reference> references = read_references(folder);
  const auto installed = program_path().parent_path().parent_path() / "share/nearmetal/references";
  for (Reference& shipped : read_references(installed)) {
    const bool own = find_in(references, shipped.name, &Reference::name) != nullptr;
    if (!own) references.push_back(std::move(shipped));
  }
  return references;
}

void declare_addition(Options& options, ReferenceForm& form) {
  add_references_option(options, form.folder);
  options.text("NAME", "", form.name, "name of the reference").required = true;
  options.paths("FILE", "FILE...", form.files, "Reports of its machines").required = true;
}

ExitCode add_reports(const ReferenceForm& form, const Context& context) {
  const auto [added, there, left_out] = add_to_reference(form.folder, form.name, form.files);
  print_line(context.terminal.out,
             form.name + ": added " + counted(added, "run") +
                 (there > 0 ? ", " + std::to_string(there) + " were there already" : "") +
                 (left_out > 0 ? ", left out " + std::to_string(left_out) +
                                     " that are not complete or of unlike jobs"
                               : ""));
  return ExitCode::ok;
}

std::map<std::string, RunArm> by_machine(const RunArm& arm) {
  std::map<std::string, RunArm> machines;
  for (const SetRun& run : arm.runs) machines[run.machine].runs.push_back(run);
  return machines;
}

std::string day_of(const std::string& time_stamp) { return time_stamp.substr(0, 10); }

void declare_list(Options& options, ReferenceForm& form) {
  add_references_option(options, form.folder);
}

ExitCode list_references(const ReferenceForm& form, const Context& context) {
  const std::vector<Reference> references = known_references(form.folder);
  for (const Reference& reference : references) {
    print_line(context.terminal.out, reference.name + ": " + reference_works(reference));
  }
  if (references.empty()) {
    print_line(context.terminal.out, "no references in " + form.folder +
                                         "; nearmetal reference add NAME FILE... makes one");
  }
  return ExitCode::ok;
}

void declare_view(Options& options, ReferenceForm& form) {
  add_references_option(options, form.folder);
  options.text("NAME", "", form.name, "name of the reference").required = true;
}

// A machine against the others, as compare judges it.
ComparisonRow among_others(const RunArm& arm, const RunArm& machine,
                           const CompareOptions& options) {
  RunArm others = arm;
  std::erase_if(others.runs,
                [&](const SetRun& run) { return run.machine == machine.runs.front().machine; });
  return compare_arms(others, machine, throughput_metric(unit_of(arm)), options);
}

void print_work(std::ostream& out, const RunArm& arm, const CompareOptions& options) {
  const Metric& metric = throughput_metric(unit_of(arm));
  TextTable table{.columns = {{"machine"},
                              {"runs", true},
                              {"last"},
                              {std::string(metric.unit) + " [95 %]", true},
                              {"against the others", true},
                              {"verdict"}}};
  int64_t within = 0, judged = 0;
  for (const auto& [name, machine] : by_machine(arm)) {
    const ComparisonRow row = among_others(arm, machine, options);
    const Maybe<Interval>& found = row.difference_interval;
    judged += found ? 1 : 0;
    within += row.verdict == Verdict::within ? 1 : 0;
    table.rows.push_back(
        {name, std::to_string(machine.runs.size()), day_of(machine.runs.back().run.started_at),
         mean_text(row.new_side, metric), found ? signed_percent(*row.difference, *found) : "-",
         found ? to_string(row.verdict) : "-"});
  }
  const SetRun& run = arm.runs.front();
  print_line(out, run.run.device_name + ", " + work_of(run));
  print_aligned(out, table);
  if (judged == 0) return;
  print_line(out, std::to_string(within) + " of " + counted(judged, "machine") +
                      " within what the others show; " + plain_percent(1 - 2 * options.rule.alpha) +
                      " are expected of machines of one kind");
}

ExitCode show_reference(const ReferenceForm& form, const Context& context) {
  const std::vector<Reference> references = known_references(form.folder);
  const Reference& reference = reference_named(references, form.name);
  const CompareOptions options = with_reference({}, reference);
  for (const RunArm& arm : reference.runs.arms) print_work(context.terminal.out, arm, options);
  return ExitCode::ok;
}

}  // namespace

void add_reference_options(Options& options, ReferenceChoice& choice) {
  const auto take = [&choice](const std::vector<std::string>& texts) {
    choice.asked = true;
    if (texts.empty() || texts.front().empty()) return;
    choice.name = texts.front();
    if (is_name_of_runs(*choice.name) && !choice.name->ends_with(".json")) return;
    throw std::invalid_argument("--reference takes a name, and '" + *choice.name +
                                "' looks like a file: put --reference after the files");
  };
  options
      .values("--reference", "[NAME]", "compare with what other machines of the kind showed", take)
      .takes = OptionSpec::Takes::perhaps;
  add_references_option(options, choice.folder);
}

Reference chosen_reference(const ReferenceChoice& choice, RunSet& next,
                           const CompareOptions& options) {
  require_none_imported(next, "a reference is for runs of nearmetal alone");
  next = by_card(next);
  return matching_reference(known_references(choice.folder), choice.name, next,
                            options.allow_differ);
}

CompareOptions with_reference(CompareOptions options, const Reference& reference) {
  if (options.rule.margin != DecisionRule{}.margin) {
    throw std::invalid_argument(
        "leave out --margin with --reference: how its machines differ takes that place");
  }
  options.form = ComparisonForm::reference;
  options.reference = reference.name;
  options.rule.margin = 0;
  options.base_can_grow = false;
  return options;
}

Command reference_command() {
  return make_group(
      "reference", "Keep runs of many machines, to judge others of the kind", reference_examples,
      "add, list or show",
      {make_command("add", "Add the runs of reports", reference_examples, declare_addition,
                    add_reports),
       make_command("list", "List all references and their work", reference_examples, declare_list,
                    list_references),
       make_command("show", "Show the machines of a reference, each against the others",
                    reference_examples, declare_view, show_reference)});
}

}  // namespace nearmetal
