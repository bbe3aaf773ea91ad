#include "bench/commands/compare.h"

#include <algorithm>
#include <array>
#include <ctime>
#include <filesystem>
#include <limits>
#include <stdexcept>
#include <tuple>

#include "base/atomic_file.h"
#include "base/text.h"
#include "base/text_table.h"
#include "bench/cli/output.h"
#include "bench/cli/parse_value.h"
#include "bench/cli/process.h"
#include "bench/commands/program.h"
#include "models/networks/registry.h"
#include "reports/compare/baseline.h"
#include "reports/compare/comparison_row.h"
#include "reports/compare/environment_differences.h"
#include "reports/formats/benchmark_text.h"
#include "reports/formats/comparison_json.h"
#include "reports/formats/comparison_text.h"
#include "reports/formats/forecast_text.h"
#include "reports/formats/headline.h"
#include "reports/json/report_files.h"

namespace nearmetal {
namespace {

using Texts = std::vector<std::string>;

// A flag that takes names, and so would take files that come after it. Only reports show which
// libraries there are.
void add_names(Options& options, const std::string& flag, const char* value, const char* help,
               Texts& names, Texts (*known)()) {
  const auto take = [=, &names](const Texts& given) {
    for (const std::string& name : given) {
      if (name.ends_with(".json") || name.find_first_of("/#") != name.npos) {
        throw std::invalid_argument(flag + " takes names, and '" + name +
                                    "' looks like a file: put " + flag + " after the files");
      }
      const bool is_library = flag == "--allow-differ" && name.starts_with("libraries.");
      if (!is_library) require_choice(flag, name, known());
      names.push_back(name);
    }
  };
  options.values(flag, value, help, take).words = known;
}

Texts metric_names() {
  return transformed(all_metrics_of(transformed(networks(), &Network::sample)),
                     [](const Metric* metric) { return std::string(metric->name); });
}

Texts metrics_to_choose_from() {
  Texts names = metric_names();
  names.insert(names.begin(), {throughput_of_runs, all_of_runs});
  return names;
}

// The metrics and the fields that options take, for the help.
std::string names_to_choose_from() {
  Texts fields = fields_that_may_differ();
  std::erase_if(fields, [](const std::string& name) { return name.find('.') != name.npos; });
  TextStream text;
  print_wrapped(text,
                "Metrics: throughput (in images/s or sequences/s, as the runs have it); all; " +
                    joined(metric_names()) + ".",
                2);
  print_wrapped(text,
                "Fields, which must agree unless --allow-differ names them: " + joined(fields) +
                    "; a part of one is named as in libraries.cudnn.",
                2);
  std::string lines = text.str();
  lines.pop_back();  // the help ends its last line itself
  return lines;
}

ExitCode exit_code_of(const Comparison& comparison) {
  const auto has_figures = [](const ComparisonRow& row) {
    return row.difference.value.has_value();
  };
  const bool agree = std::ranges::all_of(comparison.key_differences, &KeyDifference::allowed);
  if (agree && std::ranges::any_of(comparison.rows, has_figures)) {
    const auto verdicts = transformed(comparison.bits, &SameBits::verdict);
    if (std::ranges::count(verdicts, BitsVerdict::differ) > 0) return ExitCode::gate_failed;
    const bool asked = std::ranges::count(verdicts, BitsVerdict::not_asked) == 0;
    return asked ? ExitCode::ok : ExitCode::not_comparable;
  }
  const auto missing =
      std::ranges::count(comparison.rows, Verdict::not_comparable, &ComparisonRow::verdict);
  return agree && missing == 0 ? ExitCode::invalid_report : ExitCode::not_comparable;
}

ExitCode exit_code_of(const CompareAnswer& judged) {
  return judged.gate ? judged.gate->exit_code : exit_code_of(judged.comparison);
}

std::string verdict_of(const CompareAnswer& judged, ExitCode code) {
  return "verdict: " +
         printable(judged.gate ? judged.gate->verdict : verdict_counts(judged.comparison)) +
         " (exit " + std::to_string(static_cast<int>(code)) + ")";
}

// What a gate that might take runs says of them; of others nothing.
Texts statements_of(const CompareAnswer& judged) {
  if (!judged.gate || !judged.sequential) return {};
  const GateResult& gate = *judged.gate;
  return {"sequential: " + counted(gate.reruns, "run") +
          " taken because earlier answers were inconclusive; of alpha " +
          plain_percent(gate.alpha) + ", shared by " + counted(gate.looks, "look") +
          ", this one took " + plain_percent(judged.comparison.options.rule.alpha)};
}

std::string page_of(const CompareAnswer& judged, const CompareRequest& request) {
  Page page = comparison_page(judged.base, judged.next, judged.comparison,
                              verdict_of(judged, exit_code_of(judged)));
  const Texts statements = statements_of(judged);
  page.remarks.insert(page.remarks.begin(), statements.begin(), statements.end());
  page.draws_charts = request.charts;
  TextStream text;
  print_html(text, page);
  return text.str();
}

// Writes each by itself: none keeps another from being written. Returns whether all were written.
bool write_files(const CompareAnswer& judged, const CompareRequest& request,
                 const Terminal& terminal) {
  bool written = true;
  const auto write = [&](const std::optional<std::string>& file, const auto& content) {
    if (!file) return;
    try {
      write_file_atomically(*file, content(), request.force);
    } catch (const std::runtime_error& error) {
      written = false;
      terminal.error(error.what());
    }
  };
  TextStream junit;
  if (judged.gate) print_junit(junit, judged.comparison, *judged.gate, judged.next);
  if (judged.gate) write(request.junit, [&] { return junit.str(); });
  write(request.html, [&] { return page_of(judged, request); });
  return written;
}

void print_answer(const Page& page, bool markdown, const Terminal& terminal) {
  if (markdown) {
    print_markdown(terminal.out, page);
  } else {
    print_text(terminal.out, page, terminal.colour);
  }
}

constexpr const char* compare_examples = R"(
Examples:
  nearmetal compare old.json new.json
  nearmetal compare --base old*.json --new new*.json    several runs of each: needed for an interval
  nearmetal compare sweep.json#old sweep.json#new       two arms of one report, as of two builds
  nearmetal compare --bare metal*.json --vm vm*.json    a VM against bare metal
  nearmetal compare --bare metal*.json --container pod*.json   a container or pod against it
  nearmetal compare old.json new.json --price-per-gpu-hour 4.20   also hours and cost to train
  nearmetal compare --a vgpu=old/ --b passthrough=new/   two set-ups, by any names
  nearmetal compare run*.json --reference fleet    this machine among others of its kind

The verdict follows from the confidence interval of the difference: EQUIVALENT if it lies within the
margin, SLOWER or FASTER if it lies beyond it, else INCONCLUSIVE. Against a reference, WITHIN is
what its machines show, SLOWER and FASTER what lies beyond 95 % of them. The exit code is 0
whatever the verdict, and 4 if runs differ in what must agree or have no row in common. If both
sides ran with --attribute, compare also says where the difference comes from. With --same-bits it
is 1 if the bits differ, and 4 if nothing says that they should be the same.

)";

// BASE NEW, a FILE of each side; NEW alone with --reference, which may come after them.
void take_places(CompareForm& form, const Places& places) {
  for (const std::string& place : places) form.places.push_back(checked_path("BASE NEW", place));
}

void choose_places(CompareForm& form) {
  const Places& places = form.places;
  if (places.empty()) return;
  if (form.request.reference.asked) {
    form.request.next.insert(form.request.next.end(), places.begin(), places.end());
    return;
  }
  if (places.size() != 2) {
    throw std::invalid_argument("BASE and NEW take one report each, so two in all, not " +
                                std::to_string(places.size()) +
                                "; for several use --base FILE... --new FILE...");
  }
  form.one_base = {places[0]};
  form.one_new = {places[1]};
}

// The places of a side, and its name.
void take_named(Places& places, const std::string& flag, std::string& title) {
  if (places.empty()) return;
  GroupedPlaces groups = grouped_places(places);
  if (groups.size() != 1 || groups.front().first.empty()) {
    throw std::invalid_argument(flag + " takes one name and files: NAME=FILE...");
  }
  title = groups.front().first;
  places = groups.front().second;
}

// A reference takes the place of all other bases.
void check_reference(const CompareForm& form) {
  const auto is_empty = [](const Places* places) { return places->empty(); };
  const std::array others = {&form.request.base, &form.bare, &form.vm, &form.container, &form.a};
  if (!std::ranges::all_of(others, is_empty) || form.request.next.empty()) {
    throw std::invalid_argument("--reference is the base: give the reports of new runs alone");
  }
}

void choose_sides(CompareForm& form) {
  CompareRequest& request = form.request;
  check(request.costs);
  choose_places(form);
  take_named(form.a, "--a", request.options.base_title);
  take_named(form.b, "--b", request.options.new_title);
  if (request.reference.asked) return check_reference(form);
  if (!form.vm.empty() && !form.container.empty()) {
    throw std::invalid_argument(
        "--vm and --container exclude each other: compare each with --bare in a separate call");
  }
  const auto given =
      std::ranges::count_if(std::array{&form.one_base, &form.one_new, &request.base, &request.next,
                                       &form.bare, &form.vm, &form.container, &form.a, &form.b},
                            [](const Places* places) { return !places->empty(); });
  const std::tuple<Places&, Places&, ComparisonForm> forms[] = {
      {request.base, request.next, ComparisonForm::sets},
      {form.one_base, form.one_new, ComparisonForm::sets},
      {form.bare, form.vm, ComparisonForm::vm},
      {form.bare, form.container, ComparisonForm::container},
      {form.a, form.b, ComparisonForm::sets}};
  for (const auto& [base, next, claim] : forms) {
    if (given != 2 || base.empty() || next.empty()) continue;
    request.base = base;
    request.next = next;
    request.options.form = claim;
    return;
  }
  throw std::invalid_argument(
      "compare takes one of: BASE NEW; --base FILE... --new FILE...; --bare FILE... --vm "
      "FILE...; --bare FILE... --container FILE...; --a NAME=FILE... --b NAME=FILE...");
}

// A forecast as BASE, against what was measured later.
ExitCode compare_with_forecast(const CompareRequest& request, const HoldsForecasts& why,
                               const Terminal& terminal) {
  if (request.base.size() != 1 || request.json || request.options.same_bits) {
    throw NotComparable(request.json ? "a forecast against what was measured has no JSON form"
                                     : why.what());
  }
  const RunSet measured = read_runs(request.next);
  const Report forecast = read_report(std::filesystem::path(request.base.front()));
  if (forecast.kind != Kind::predicted) throw NotComparable(why.what());
  const std::vector<HoldOut> checks =
      check_forecast(forecast, measured, request.options.allow_differ);
  const Page page = forecast_check_page(checks, forecast.arms.front().forecast->sample);
  publish(page, request, terminal);
  return ExitCode::ok;
}

ExitCode compare_with_reference(const CompareRequest& request, const Context& context) {
  require_no_input(request, request.next);
  RunSet next = read_runs(request.next, request.html.has_value());
  remark_foreign(next, context.terminal);
  const Reference reference = chosen_reference(request.reference, next, request.options);
  const Comparison comparison =
      compare(reference.runs, next, with_reference(request.options, reference));
  return publish({reference.runs, next, comparison}, request, context.terminal);
}

ExitCode compare_runs(const CompareForm& form, const Context& context) {
  const CompareRequest& request = form.request;
  if (request.reference.asked) return compare_with_reference(request, context);
  for (const Places& places : {request.base, request.next}) require_no_input(request, places);
  const bool with_steps = request.html.has_value() || request.options.same_bits;
  std::vector<RunSet> sides = read_sides({request.base, request.next}, with_steps);
  for (const RunSet& side : sides) remark_foreign(side, context.terminal);
  CompareOptions options = request.options;
  if (request.costs.asked() && options.metrics.empty()) options.metrics = {throughput_of_runs};
  options.bare_is_virtual = shows_hypervisor(sides[0]);
  const SideWords words = words_of(options);
  add_costs(sides[0], request.costs, words.base_title + ", ");
  add_costs(sides[1], request.costs, words.new_title + ", ");
  for (const RunArm& arm : sides[0].arms) {
    for (const Metric* metric : cost_metrics(arm)) add_new(options.metrics, metric->name);
  }
  Comparison comparison = compare(sides[0], sides[1], options);
  for (const RunSet& side : sides) {
    for (const std::string& note : side.cost_notes) add_new(comparison.notes, {"cost", note});
  }
  return publish({sides[0], sides[1], comparison}, request, context.terminal);
}

ExitCode run_compare(const CompareForm& form, const Context& context) {
  try {
    return compare_runs(form, context);
  } catch (const HoldsForecasts& why) {
    return compare_with_forecast(form.request, why, context.terminal);
  }
}

}  // namespace

void add_rule_options(Options& options, CompareOptions& compare) {
  options.share("--margin", compare.rule.margin, {0, 0.2, true},
                "largest difference that counts as equivalent, up to 20% [2%]");
  options.share("--alpha", compare.rule.alpha, {1e-6, 0.25}, "chance of each kind of error [5%]");
  add_metric_option(options, "figures to compare, or all [throughput]", compare.metrics);
  add_names(options, "--allow-differ", "FIELD...",
            "fields that may differ; compare --help lists them", compare.allow_differ,
            fields_that_may_differ);
}

void add_metric_option(Options& options, const char* help, Texts& metrics) {
  add_names(options, "--metric", "NAME...", help, metrics, metrics_to_choose_from);
}

void add_baselines_option(Options& options, std::string& folder) {
  options.path("--baselines", "FOLDER", folder, "folder that holds the baselines [baselines]");
}

void add_form_options(Options& options, CompareRequest& request) {
  options.value("--sort", "verdict|layout",
                "order of rows: worst first, or fewest ranks first [verdict]",
                request.options.order, parse_choice<RowOrder>);
  const auto choose = [](bool& form, bool other) {
    form = true;
    if (other) throw std::invalid_argument("--json and --markdown are two forms; give one of them");
  };
  options.toggle("--json", "print JSON (nearmetal schema comparison)",
                 [&request, choose] { choose(request.json, request.markdown); });
  options.toggle("--markdown", "print Markdown",
                 [&request, choose] { choose(request.markdown, request.json); });
}

void add_cost_options(Options& options, CostRequest& costs) {
  options.under("Time and cost of a training");
  const auto add = [&](const char* flag, const char* value, auto& member, const char* help) {
    options.value(flag, value, help, member, parse_amount);
  };
  add("--price-per-gpu-hour", "PRICE", costs.price_per_gpu_hour, "price of a GPU, such as 4.20");
  add("--price-per-kwh", "PRICE", costs.price_per_kwh, "price of the energy of GPUs: 0.30");
  add("--samples", "N", costs.samples, "samples to train: 115M, 2k [as usual for the network]");
  add("--epochs", "N", costs.epochs, "epochs of ImageNet to train");
  add("--deadline", "HOURS", costs.deadline_hours, "name the cheapest and fastest within it");
  add("--budget", "AMOUNT", costs.budget, "name the cheapest and fastest for it: 500, 1.2k");
  options.number("--gpus-per-host", "N", costs.gpus_per_host, {1, 1024},
                 "GPUs paid of each host, used or not [those used]");
}

void remark_foreign(const RunSet& set, const Terminal& terminal) {
  for (const std::string& file : set.foreign) {
    terminal.remark("nearmetal: note: " + file + " is no report and is left out");
  }
}

void require_no_input(const CompareRequest& request, const std::vector<std::string>& places) {
  for (const auto& output : {request.html, request.junit}) {
    if (output) require_no_input(*output, files_of(places));
  }
}

ExitCode publish(const CompareAnswer& judged, const CompareRequest& request,
                 const Terminal& terminal) {
  const bool written = write_files(judged, request, terminal);
  const ExitCode judgement = exit_code_of(judged);
  const ExitCode code = judgement == ExitCode::ok && !written ? ExitCode::output_failed : judgement;
  if (request.json) {
    terminal.out << to_json(judged.comparison, judged.gate, code);
  } else {
    print_answer(page_of(judged.comparison), request.markdown, terminal);
    for (const std::string& line : statements_of(judged)) print_line(terminal.out, line);
    terminal.out << verdict_of(judged, code) << '\n';
  }
  terminal.out.flush();
  return code;
}

void publish(const Page& page, const CompareRequest& request, const Terminal& terminal) {
  if (request.html) {
    write_output({request.html, request.force}, terminal,
                 [&](std::ostream& out) { print_html(out, page); });
  }
  if (!request.json) print_answer(page, request.markdown, terminal);
}

void add_compare_options(Options& options, CompareForm& form) {
  CompareRequest& request = form.request;
  options.values("BASE NEW", " ", "Reports",
                 [&form](const Places& places) { take_places(form, places); });
  options.paths("--base", "FILE...", request.base, "base reports, to compare with");
  options.paths("--new", "FILE...", request.next, "new reports");
  options.paths("--a", "NAME=FILE...", form.a, "base reports, under a name of the side");
  options.paths("--b", "NAME=FILE...", form.b, "new reports, in the same way");
  options.paths("--bare", "FILE...", form.bare, "reports of bare metal");
  options.paths("--vm", "FILE...", form.vm,
                "reports of a VM; also lists how the two machines differ");
  options.paths("--container", "FILE...", form.container,
                "reports of a container or pod, in the same way");
  add_reference_options(options, request.reference);
  add_rule_options(options, request.options);
  options.toggle("--same-bits", request.options.same_bits,
                 "exit 1 unless both computed the same bits, by run --digest");
  add_form_options(options, request);
  add_page_options(options, request);
  add_cost_options(options, request.costs);
  options.check([&form] { choose_sides(form); });
}

void add_page_options(Options& options, CompareRequest& request) {
  options.path("--html", "FILE", request.html, "also write a page with charts");
  options.toggle("--no-charts", "leave the charts out of the page",
                 [&request] { request.charts = false; });
  options.toggle("--force", request.force, "replace an existing file");
}

Command compare_command() {
  return make_command("compare", "Compare two sets of runs",
                      compare_examples + names_to_choose_from(), add_compare_options, run_compare);
}

}  // namespace nearmetal
