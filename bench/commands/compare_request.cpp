#include "bench/commands/compare_request.h"

#include <algorithm>
#include <functional>
#include <sstream>
#include <stdexcept>

#include "bench/cli/parse_value.h"
#include "bench/commands/html_output.h"
#include "models/networks/registry.h"
#include "reports/files/atomic_file.h"
#include "reports/formats/benchmark_text.h"
#include "reports/formats/comparison_json.h"
#include "reports/formats/comparison_text.h"
#include "reports/formats/headline.h"
#include "reports/text/text.h"
#include "reports/text/text_table.h"

namespace nearmetal {
namespace {

using Texts = std::vector<std::string>;

// A flag that takes names, and so would take files that come after it.
OptionSpec& add_names(Options& options, const std::string& flag, const char* value,
                      const char* help, Texts& names,
                      const std::function<void(const std::string& name)>& check) {
  return options.values(flag, value, help, [=, &names](const Texts& given) {
    for (const std::string& name : given) {
      if (name.ends_with(".json") || name.find_first_of("/#") != name.npos) {
        throw std::invalid_argument(flag + " takes names, and '" + name +
                                    "' looks like a file: put " + flag + " after the files");
      }
      check(name);
      names.push_back(name);
    }
  });
}

Texts metric_names() {
  Texts names;
  std::vector<SampleUnit> units;
  for (const Network& network : networks()) units.push_back(network.sample);
  for (const Metric* metric : all_metrics_of(units)) names.emplace_back(metric->name);
  return names;
}

Texts metrics_to_choose_from() {
  Texts names = metric_names();
  names.insert(names.begin(), {throughput_of_runs, all_of_runs});
  return names;
}

void check_metric(const std::string& name) {
  require_choice("--metric", name, metrics_to_choose_from());
}

// Only reports show which libraries there are.
void check_field(const std::string& name) {
  if (name.starts_with("libraries.")) return;
  require_choice("--allow-differ", name, fields_that_may_differ());
}

ExitCode exit_code_of(const Comparison& comparison) {
  const auto refused = [](const KeyDifference& found) { return !found.allowed; };
  if (std::any_of(comparison.key_differences.begin(), comparison.key_differences.end(), refused)) {
    return ExitCode::not_comparable;
  }
  const auto& rows = comparison.rows;
  const auto is_missing = [](const ComparisonRow& row) {
    return row.verdict == Verdict::not_comparable;
  };
  const auto has_figures = [](const ComparisonRow& row) {
    return row.difference.value.has_value();
  };
  if (std::any_of(rows.begin(), rows.end(), has_figures)) return ExitCode::ok;
  return std::any_of(rows.begin(), rows.end(), is_missing) ? ExitCode::not_comparable
                                                           : ExitCode::invalid_report;
}

ExitCode exit_code_of(const CompareAnswer& judged) {
  return judged.gate ? judged.gate->exit_code : exit_code_of(judged.comparison);
}

std::string verdict_of(const CompareAnswer& judged, ExitCode code) {
  return "verdict: " +
         printable(judged.gate ? judged.gate->verdict : verdict_counts(judged.comparison)) +
         " (exit " + std::to_string(static_cast<int>(code)) + ")";
}

// The statement of a gate that might take runs about itself, else empty.
std::string sequential_text(const CompareAnswer& judged) {
  if (!judged.gate || !judged.sequential) return "";
  const GateResult& gate = *judged.gate;
  return "sequential: " + counted(gate.reruns, "run") +
         " taken because earlier answers were inconclusive; of alpha " + plain_percent(gate.alpha) +
         ", shared by " + counted(gate.looks, "look") + ", this one took " +
         plain_percent(judged.comparison.options.rule.alpha);
}

std::string junit_of(const CompareAnswer& judged) {
  std::ostringstream text;
  print_junit(text, judged.comparison, *judged.gate);
  return text.str();
}

std::string page_of(const CompareAnswer& judged, const CompareRequest& request) {
  Page page = comparison_page(judged.base, judged.next, judged.comparison,
                              verdict_of(judged, exit_code_of(judged)));
  const std::string statement = sequential_text(judged);
  if (!statement.empty()) page.remarks.insert(page.remarks.begin(), statement);
  return html_of(page, request.charts);
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
      terminal.err << "nearmetal: " << printable(error.what()) << '\n';
    }
  };
  if (judged.gate) write(request.junit, [&] { return junit_of(judged); });
  write(request.html, [&] { return page_of(judged, request); });
  return written;
}

void print_answer(const CompareAnswer& judged, const CompareRequest& request, ExitCode code,
                  const Terminal& terminal) {
  const Comparison& comparison = judged.comparison;
  if (request.json) {
    terminal.out << to_json(comparison, judged.gate, code);
    return;
  }
  if (request.markdown) {
    print_markdown(terminal.out, page_of(comparison));
  } else {
    print_text(terminal.out, page_of(comparison), terminal.colour);
  }
  const std::string statement = sequential_text(judged);
  if (!statement.empty()) print_line(terminal.out, statement);
  terminal.out << verdict_of(judged, code) << '\n';
}

}  // namespace

std::string names_to_choose_from() {
  Texts fields = fields_that_may_differ();
  std::erase_if(fields, [](const std::string& name) { return name.find('.') != name.npos; });
  std::ostringstream text;
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

void add_rule_options(Options& options, CompareOptions& compare) {
  options.value("--margin", "SHARE", "largest difference that counts as equivalent, up to 20% [2%]",
                [&compare](const std::string& text) {
                  compare.rule.margin = parse_share("--margin", text, {0, 0.2, true});
                });
  options.value("--alpha", "SHARE", "chance of each kind of error [5%]",
                [&compare](const std::string& text) {
                  compare.rule.alpha = parse_share("--alpha", text, {1e-6, 0.25});
                });
  add_names(options, "--metric", "NAME...", "figures to compare, or all [throughput]",
            compare.metrics, check_metric)
      .words = metrics_to_choose_from;
  add_names(options, "--allow-differ", "FIELD...",
            "fields that may differ; compare --help lists them", compare.allow_differ, check_field)
      .words = fields_that_may_differ;
}

void add_form_options(Options& options, CompareRequest& request) {
  options.value("--sort", "verdict|layout",
                "order of rows: worst first, or fewest ranks first [verdict]",
                [&request](const std::string& text) {
                  request.options.order = parse_choice<RowOrder>("--sort", text);
                });
  const auto choose = [](bool& form, bool other) {
    form = true;
    if (other) throw std::invalid_argument("--json and --markdown are two forms; give one of them");
  };
  options.toggle("--json", "print JSON (nearmetal schema comparison)",
                 [&request, choose] { choose(request.json, request.markdown); });
  options.toggle("--markdown", "print Markdown",
                 [&request, choose] { choose(request.markdown, request.json); });
}

void add_page_options(Options& options, CompareRequest& request) {
  options.path("--html", "FILE", request.html, "also write a page with charts");
  options.toggle("--no-charts", "leave the charts out of the page; gnuplot draws them",
                 [&request] { request.charts = false; });
  options.toggle("--force", request.force, "replace an existing file");
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
  print_answer(judged, request, code, terminal);
  terminal.out.flush();
  return code;
}

}  // namespace nearmetal
