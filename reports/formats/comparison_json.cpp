#include "reports/formats/comparison_json.h"

#include "base/text.h"
#include "reports/compare/run_difference.h"
#include "reports/json/archive.h"
#include "reports/json/report_fields.h"

namespace nearmetal {

namespace json {
namespace {

std::vector<Warning> notes_of(const ComparisonRow& row) {
  std::vector<Warning> notes = row.notes;
  for (const SideSummary* side : {&row.base_side, &row.new_side}) {
    for (const RunWarning& found : side->warnings) {
      const std::string runs = std::to_string(found.runs.size()) + " of " +
                               counted(side->runs, "run") + " of " + side->name + " warned";
      notes.push_back({found.warning.code, extent_text(found, runs) + ": " + found.warning.text,
                       found.warning.figure});
    }
  }
  return notes;
}

struct ComparisonDocument {
  std::string schema = "nearmetal/comparison";
  std::string schema_version = "1.7";  // 1.7: bits
  int64_t exit_code = 0;
  const Comparison& comparison;
  const std::optional<GateResult>& gate;
};

struct BaselinesDocument {
  std::string schema = "nearmetal/baselines";
  std::string schema_version = "1.2";  // 1.2: the work
  std::vector<BaselineSeries> series;
};

constexpr Form cause_code{.pattern = "^[a-z0-9_]+$",
                          .description = "a code of lower-case letters, digits and underscores"};
constexpr Range chance = within(0, 1);

}  // namespace

void fields(Archive& field, Interval& interval) {
  field.type("interval");
  field("lower", interval.lower);
  field("upper", interval.upper);
}

void fields(Archive& field, RunSpread& spread) {
  field.type("spread", "Spread of the runs, relative");
  field("deviation", spread.deviation, at_least(0), "Standard deviation of ln(run)");
  field("between", spread.between, at_least(0), "Part that the noise within runs does not explain");
  field("within", spread.within, at_least(0), "Noise within the runs");
}

void fields(Archive& field, LogEstimate& estimate) {
  field.type("log_estimate");
  field("value", estimate.value);
  field("standard_error", estimate.standard_error, above(0));
  field("degrees_of_freedom", estimate.degrees_of_freedom, above(0));
}

void fields(Archive& field, SideSummary& side) {
  field.type("side", "One of the two sets of runs");
  field("runs", side.runs, at_least(0), "Runs that count");
  field("left_out", side.left_out, at_least(0), "Partial, failed, or without the figure");
  field.added("sessions", side.sessions, at_least(0),
              "Sessions in which the runs were taken: distinct hosts, boots and days; since 1.2");
  field.added("machines", side.machines, at_least(0),
              "Of a reference: machines of the runs, of which the mean is; else 0; since 1.6");
  field.added("days", side.days, at_least(0), "The same: days of the runs; since 1.6");
  field("geometric_mean", side.geometric_mean);
  field("interval", side.interval, "95 % interval of the mean");
  field("spread", side.spread);
  field("run_seconds", side.run_seconds, at_least(0),
        "Mean time of a run: set-up, warm-up and window");
}

void fields(Archive& field, ComparisonRow& row) {
  field.type("row", "One layout and metric");
  field("arm", row.arm);
  field.added("since", row.since,
              "Day of the first runs of a baseline, where the row is held against these; else "
              "empty; since 1.2");
  field("metric", row.metric);
  // None in the row that stands for all in the schema.
  field("unit", std::string(row.metric.empty() ? "" : metric_from(row.metric).base_unit));
  field("verdict", row.verdict);
  field("reason", row.reason);
  field("method", row.method);
  field("base_side", row.base_side);
  field("new_side", row.new_side);
  field("log_difference", row.log_difference, "ln(new / base)");
  field("difference", row.difference, "new / base - 1");
  field("difference_interval", row.difference_interval, "Its confidence is 1 - 2 alpha");
  field("median_difference", row.median_difference,
        "The same of the median of all differences of runs (Hodges and Lehmann)");
  field("median_interval", row.median_interval);
  field("doubt", row.doubt,
        "Why the runs leave no verdict, as one decides it or a side drifts; null: they do");
  field("p", row.p, chance, "p-value of no difference, by Student's t");
  field("rank_test_p", row.rank_test_p, chance,
        "p-value of no difference, by Mann-Whitney, of pairs by Wilcoxon");
  field("p_worse", row.p_worse, chance, "p-value of: worse by the margin or more");
  field("p_better", row.p_better, chance, "p-value of: better by the margin or more");
  field("p_regression", row.p_regression, chance,
        "p-value of: not worse than the margin; a small one shows a regression");
  field("detectable_drop", row.detectable_drop, chance, "Drop that is found with 80 % chance");
  field("more_runs", row.more_runs, at_least(0),
        "Runs a side (of a gate: new ones) that decide with 80 % chance, if the measured "
        "difference is the true one");
  field("more_sessions", row.more_sessions, at_least(0),
        "The same of sessions a side, each of as many runs as now");
  field("notes", notes_of(row));
}

void fields(Archive& field, KeyDifference& found) {
  field.type("key_difference", "Something that must agree and differs");
  field("name", found.name);
  field("severity", found.severity);
  field("base", found.base);
  field("other", found.other);
  field("source", found.source, "File of the run that differs");
  field("allowed", found.allowed);
}

void fields(Archive& field, EnvironmentDifference& difference) {
  field.type("environment_difference");
  field("name", difference.name, "Place in the environment of a report");
  field("base", difference.base);
  field("other", difference.other);
}

void fields(Archive& field, SeenProbe& seen) {
  field.type("seen_probe", "What was seen of a layer on each side, its median over the runs");
  field("name", seen.name);
  field("unit", seen.unit);
  field("base", seen.base);
  field("other", seen.other);
}

void fields(Archive& field, LayerShare& share) {
  field.type("layer_share", "What one layer of the machine has to do with the difference");
  field("layer", share.layer);
  field("seconds", share.seconds,
        "Time by which a step of the base would be longer with this layer of the new side");
  field("share_of_step", share.share_of_step, "Share of the base's step");
  field("share_of_difference", share.share_of_difference);
  field("sensitive", share.sensitive, "false: the step does not wait for this layer");
  field("below_noise", share.below_noise);
  field("statement", share.statement, "Why it does not count, or which part it is");
  field("seen", share.seen);
}

void fields(Archive& field, KnownCause& cause) {
  field.type("cause", "Something that is known to cost what the layer costs");
  field("code", cause.code, cause_code, "Stable, for scripts");
  field("layer", cause.layer);
  field("seen", cause.seen);
  field("hint", cause.hint, "What to do about it");
}

void fields(Archive& field, Explanation& explanation) {
  field.type("explanation",
             "The seconds of all layers and unexplained_seconds sum up to difference_seconds");
  field("arm", explanation.arm);
  field("model", std::string(attribution_model), "Model of a step, in words");
  field("base_step_seconds", explanation.base_step_seconds, above(0));
  field("new_step_seconds", explanation.new_step_seconds, above(0));
  field("difference_seconds", explanation.difference_seconds, "New - base");
  field("noise_seconds", explanation.noise_seconds, "Half the interval of the difference");
  field("layers", explanation.layers,
        "Layers whose figure counts come first; of these, what made the difference before what "
        "eased it");
  field("unexplained_seconds", explanation.unexplained_seconds, "What the model does not know");
  field("unexplained_share", explanation.unexplained_share, "Share of the difference");
  field("causes", explanation.causes, "Most likely first");
}

void fields(Archive& field, SameBits& bits) {
  field.type("bits", "Whether both sides of an arm computed the same, to the last bit");
  field("arm", bits.arm);
  field("verdict", bits.verdict, "not asked: nothing says that they should be the same");
  field("reason", bits.reason, "Why they are not asked, or may differ; else empty");
  field("steps", bits.steps, "Those that were compared");
  field("parameters", bits.parameters);
  field("first_step", bits.first_step, "From which on they differ; 0: from none");
  field("differing", bits.differing,
        "In that step: the loss, and parameters as the graph has them");
}

void fields(Archive& field, CompareOptions& options) {
  field.type("options");
  field("margin", options.rule.margin, "(1 - margin) x the base is just no regression");
  field("alpha", options.rule.alpha, "Chance of each kind of error");
  field("metrics", options.metrics);
  field("allow_differ", options.allow_differ);
  field("vm_form", options.form == ComparisonForm::vm, "The base is bare metal, the new side a VM");
  field.added("form", options.form,
              "What the sides are said to be: any two sets of runs, bare metal and a VM or a "
              "container, or a reference and one machine; since 1.3");
  field.added("reference", options.reference, "Its name; empty: none; since 1.6");
}

void fields(Archive& field, GateResult& gate) {
  field.type("gate");
  field("fail_on", gate.options.fail_on);
  field("minimum_runs", gate.options.minimum_runs, at_least(0));
  field.added("require_clean", gate.options.require_clean,
              "Refuses runs whose monitor did not show them to be undisturbed; since 1.1");
  field.added(
      "largest_detectable_drop", gate.options.largest_detectable_drop, chance,
      "A gate that finds none but larger drops is inconclusive; null: not asked; since 1.2");
  field("verdict", gate.verdict);
  field("inconclusive", gate.inconclusive, "More runs could change the answer");
  field("adjusted_p", gate.adjusted_p, chance,
        "p_regression of the rows that have one, after Holm's correction");
  field("sequential", gate.reruns > 0, "Runs were added because of earlier answers");
  field("reruns", gate.reruns, at_least(0));
  field("looks", gate.looks, at_least(1), "Planned looks at the runs, that share alpha");
  field("alpha", gate.alpha, Range{0, 1, true},
        "For all looks together; that in options is the part of the last one taken");
}

void fields(Archive& field, ComparisonDocument& document) {
  field.type("comparison",
             "What `nearmetal compare`, `gate` and `rerun` found. Shares are fractions, not "
             "percent. Unknown values are null, with the reason under the same name in `unknown` "
             "of the object. Fields that are not listed here are allowed: minor versions add "
             "them.");
  field("schema", document.schema, one_of("nearmetal/comparison"));
  field("schema_version", document.schema_version, readable_version);
  field("exit_code", document.exit_code, within(0, 255));
  field("options", document.comparison.options);
  field("gate", document.gate, "null: nothing was gated");
  field("rows", document.comparison.rows,
        "One for each layout and metric, the worst first unless asked for by layout");
  field("geometric_means", document.comparison.geometric_means,
        "Means of all rows of a metric, where there are several");
  field("key_differences", document.comparison.key_differences,
        "What must agree and differs, the most severe first");
  field.added("explanations", document.comparison.explanations,
              "Where differences come from, of the layouts whose runs were taken with --attribute");
  field.added("bits", document.comparison.bits, "Of --same-bits, for each arm; since 1.7");
  field("environment_differences", document.comparison.environment_differences);
  field("notes", document.comparison.notes);
  field("new_hosts", document.comparison.new_hosts,
        "Hosts of the new runs that the baseline of a gate never had");
}

void fields(Archive& field, NeededRuns& needed) {
  field.type("needed_runs",
             "What a gate needs to find a drop: runs a side, or of a baseline of several sessions "
             "new sessions");
  field("drop", needed.drop, above(0), "Drop of throughput, as a share");
  field("runs", needed.runs, at_least(1));
  field("sessions", needed.sessions, at_least(1));
}

void fields(Archive& field, SelfTest& test) {
  field.type("self_test",
             "Parts of the baseline compared with the rest, as new runs are: each session in turn, "
             "or of one session runs drawn again and again");
  field("splits", test.splits, at_least(0), "Comparisons");
  field("slower", test.slower, at_least(0), "Comparisons that call the part SLOWER: false alarms");
  field("detectable_drop", test.detectable_drop, chance,
        "Drop of the part that 80 % of the splits call SLOWER");
}

void fields(Archive& field, BaselineSeries& series) {
  field.type("series", "The runs of one arm under one fingerprint");
  field("baseline", series.baseline);
  field("fingerprint", series.fingerprint,
        "First digits of the hash of what runs must agree in, but for the layout");
  field("arm", series.arm);
  field.added("work", series.work, "What it is that a fingerprint stands for; since 1.2");
  field.unit("sample", series.sample);
  field("runs", series.runs, at_least(0), "Runs that are complete");
  field("sessions", series.sessions, at_least(0), "Sessions of these runs");
  field("left_out", series.left_out, at_least(0), "Runs that are not complete");
  field("first", series.first, time_stamp, "Start of the first run");
  field("last", series.last, time_stamp, "Start of the last run");
  field(field.words().throughput_key, series.throughput, above(0), "Geometric mean of the runs");
  field("lower", series.lower, above(0), "Bound of the 95 % interval of that mean");
  field("upper", series.upper, above(0));
  field("spread", series.spread, at_least(0), "Standard deviation of ln(run)");
  field("run_seconds", series.run_seconds, at_least(0),
        "Mean time of a run: set-up, warm-up and window");
  field("needed_runs", series.needed_runs);
  field("self_test", series.self_test, "The result of show --self-test; null: not asked for");
}

void fields(Archive& field, BaselinesDocument& document) {
  field.type("baselines",
             "The runs of baselines. Fields that are not listed here are allowed: minor versions "
             "add them.");
  field("schema", document.schema, one_of("nearmetal/baselines"));
  field("schema_version", document.schema_version, readable_version);
  field("series", document.series);
}

}  // namespace json

std::string comparison_schema() {
  const Comparison comparison;
  const std::optional<GateResult> gate;
  const json::ComparisonDocument sample{.comparison = comparison, .gate = gate};
  return json::schema_text_of(sample, "Comparison of nearmetal");
}

std::string to_json(const Comparison& comparison, const std::optional<GateResult>& gate,
                    ExitCode exit_code) {
  const json::ComparisonDocument document{
      .exit_code = static_cast<int64_t>(exit_code), .comparison = comparison, .gate = gate};
  return json::lines_of(document);
}

std::string baselines_schema() {
  return json::schema_text_of(json::BaselinesDocument{}, "Baselines of nearmetal");
}

std::string to_json(const std::vector<BaselineSeries>& series) {
  const json::BaselinesDocument document{.series = series};
  return json::lines_of(document);
}

}  // namespace nearmetal
