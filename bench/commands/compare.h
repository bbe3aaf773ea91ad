// `nearmetal compare`, and what the commands that judge runs have in common.
#pragma once

#include <optional>
#include <string>

#include "base/errors.h"
#include "bench/cli/command_line.h"
#include "bench/commands/reference.h"
#include "reports/compare/compare.h"
#include "reports/compare/gate.h"
#include "reports/compare/read_runs.h"
#include "reports/formats/page.h"
#include "reports/sharing/cost.h"

namespace nearmetal {

struct CompareRequest {
  Places base;  // FILE, FILE#ARM or FOLDER; of gate also the name of a baseline
  Places next;
  ReferenceChoice reference;  // in place of `base`
  CompareOptions options;
  CostRequest costs;  // of compare
  bool json = false;
  bool markdown = false;
  std::optional<std::string> html;   // files, besides what is printed
  std::optional<std::string> junit;  // of gate
  bool charts = true;                // of HTML
  bool force = false;
};

/// Margin, alpha, metrics, and which fields may differ.
void add_rule_options(Options& options, CompareOptions& compare);
/// Where all baselines are, for commands that take the name of one.
void add_baselines_option(Options& options, std::string& folder);
/// The options for the form of the answer.
void add_form_options(Options& options, CompareRequest& request);
/// Pages besides what is printed.
void add_page_options(Options& options, CompareRequest& request);
/// --metric, of names that figures have.
void add_metric_option(Options& options, const char* help, std::vector<std::string>& metrics);
/// Prices, and what to train. Whether they go together is for check() to say.
void add_cost_options(Options& options, CostRequest& costs);
/// Names files of folders that were left out.
void remark_foreign(const RunSet& set, const Terminal& terminal);
/// Throws std::invalid_argument where a file to be written is one of these, which are read.
void require_no_input(const CompareRequest& request, const Places& places);

/// An answer.
struct CompareAnswer {
  const RunSet& base;
  const RunSet& next;
  const Comparison& comparison;
  std::optional<GateResult> gate{};
  bool sequential = false;  // the gate might take runs
};

/// Prints it and writes the files that are asked for; the verdict is the last line, in JSON a
/// field. Without a gate: ok whatever the verdict; not_comparable where runs differ in what must
/// agree, or no row is on both sides; invalid_report where no row has complete runs on both sides;
/// else, if bits are asked for, gate_failed where they differ, not_comparable where they need not.
ExitCode publish(const CompareAnswer& judged, const CompareRequest& request,
                 const Terminal& terminal);

/// Writes a page as HTML where that is asked for, and prints it, but where JSON is.
void publish(const Page& page, const CompareRequest& request, const Terminal& terminal);

struct CompareForm {
  CompareRequest request;
  Places places;               // BASE NEW, as they are given
  Places one_base, one_new;    // one place of each
  Places bare, vm, container;  // sides of their own names
  Places a, b;                 // NAME=FILE...
};

/// One of the forms fills the sides of the request.
void add_compare_options(Options& options, CompareForm& form);

}  // namespace nearmetal
