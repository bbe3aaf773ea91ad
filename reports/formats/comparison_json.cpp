#include "reports/formats/comparison_json.h"

#include "reports/json/fields.h"
#include "reports/text/text.h"

namespace nearmetal {
using json::In;

template <class Archive>
void fields(Archive& field, In<Archive, Interval> interval) {
  field("lower", interval.lower);
  field("upper", interval.upper);
}

template <class Archive>
void fields(Archive& field, In<Archive, RunSpread> spread) {
  field("deviation", spread.deviation);
  field("between", spread.between);
  field("within", spread.within);
}

template <class Archive>
void fields(Archive& field, In<Archive, LogEstimate> estimate) {
  field("value", estimate.value);
  field("standard_error", estimate.standard_error);
  field("degrees_of_freedom", estimate.degrees_of_freedom);
}

std::vector<Warning> notes_of(const ComparisonRow& row) {
  std::vector<Warning> notes = row.notes;
  for (const SideSummary* side : {&row.base_side, &row.new_side}) {
    for (const RunWarning& found : side->warnings) {
      notes.push_back({found.warning.code, std::to_string(found.runs) + " of " +
                                               counted(side->runs, "run") + " of " + side->name +
                                               " warned: " + found.warning.text +
                                               (found.same ? "" : " (figures of the first)")});
    }
  }
  return notes;
}

template <class Archive>
void fields(Archive& field, In<Archive, SideSummary> side) {
  field("runs", side.runs);
  field("left_out", side.left_out);
  field("geometric_mean", side.geometric_mean);
  field("interval", side.interval);
  field("spread", side.spread);
}

template <class Archive>
void fields(Archive& field, In<Archive, ComparisonRow> row) {
  field("arm", row.arm);
  field("metric", row.metric);
  field("unit", std::string(metric_from(row.metric).base_unit));
  field("verdict", row.verdict);
  field("reason", row.reason);
  field("method", row.method);
  field("base_side", row.base_side);
  field("new_side", row.new_side);
  field("log_difference", row.log_difference);
  field("difference", row.difference);
  field("difference_interval", row.difference_interval);
  field("p", row.p);
  field("rank_test_p", row.rank_test_p);
  field("p_worse", row.p_worse);
  field("p_better", row.p_better);
  field("p_regression", row.p_regression);
  field("detectable_drop", row.detectable_drop);
  field("more_runs", row.more_runs);
  field("notes", notes_of(row));
}

template <class Archive>
void fields(Archive& field, In<Archive, FoundDifference> found) {
  field("name", found.difference.name);
  field("severity", found.difference.severity);
  field("base", found.difference.base);
  field("other", found.difference.other);
  field("source", found.source);
  field("allowed", found.allowed);
}

template <class Archive>
void fields(Archive& field, In<Archive, EnvironmentDifference> difference) {
  field("name", difference.name);
  field("base", difference.base);
  field("other", difference.other);
}

template <class Archive>
void fields(Archive& field, In<Archive, SeenProbe> seen) {
  field("name", seen.name);
  field("unit", seen.unit);
  field("base", seen.base);
  field("other", seen.other);
}

template <class Archive>
void fields(Archive& field, In<Archive, LayerShare> share) {
  field("layer", share.layer);
  field("seconds", share.seconds);
  field("share_of_step", share.share_of_step);
  field("share_of_difference", share.share_of_difference);
  field("sensitive", share.sensitive);
  field("below_noise", share.below_noise);
  field("statement", share.statement);
  field("seen", share.seen);
}

template <class Archive>
void fields(Archive& field, In<Archive, KnownCause> cause) {
  field("code", cause.code);
  field("layer", cause.layer);
  field("seen", cause.seen);
  field("hint", cause.hint);
}

template <class Archive>
void fields(Archive& field, In<Archive, Explanation> explanation) {
  field("arm", explanation.arm);
  field("model", std::string(attribution_model));
  field("base_step_seconds", explanation.base_step_seconds);
  field("new_step_seconds", explanation.new_step_seconds);
  field("difference_seconds", explanation.difference_seconds);
  field("noise_seconds", explanation.noise_seconds);
  field("layers", explanation.layers);
  field("unexplained_seconds", explanation.unexplained_seconds);
  field("unexplained_share", explanation.unexplained_share);
  field("causes", explanation.causes);
}

template <class Archive>
void fields(Archive& field, In<Archive, CompareOptions> options) {
  field("margin", options.rule.margin);
  field("alpha", options.rule.alpha);
  field("metrics", options.metrics);
  field("allow_differ", options.allow_differ);
  field("vm_form", options.vm_form);
}

template <class Archive>
void fields(Archive& field, In<Archive, GateResult> gate) {
  field("fail_on", gate.options.fail_on);
  field("minimum_runs", gate.options.minimum_runs);
  field("require_clean", gate.options.require_clean);
  field("verdict", gate.verdict);
  field("inconclusive", gate.inconclusive);
  field("adjusted_p", gate.adjusted_p);
  field("sequential", gate.reruns > 0);
  field("reruns", gate.reruns);
  field("looks", gate.looks);
  field("alpha", gate.alpha);
}

namespace {

struct Document {
  std::string schema = "nearmetal/comparison";
  std::string schema_version = "1.1";
  int64_t exit_code = 0;
  const Comparison& comparison;
  const std::optional<GateResult>& gate;
};

template <class Archive>
void fields(Archive& field, const Document& document) {
  field("schema", document.schema);
  field("schema_version", document.schema_version);
  field("exit_code", document.exit_code);
  field("options", document.comparison.options);
  field("gate", document.gate);
  field("rows", document.comparison.rows);
  field("geometric_means", document.comparison.geometric_means);
  field("key_differences", document.comparison.key_differences);
  field("explanations", document.comparison.explanations);
  field("environment_differences", document.comparison.environment_differences);
  field("notes", document.comparison.notes);
}

}  // namespace

std::string to_json(const Comparison& comparison, const std::optional<GateResult>& gate,
                    ExitCode exit_code) {
  const Document document{
      .exit_code = static_cast<int64_t>(exit_code), .comparison = comparison, .gate = gate};
  return json::Writer::json_of(document).dump(2, ' ', false, json::replace_bad_utf8) + "\n";
}

}  // namespace nearmetal
