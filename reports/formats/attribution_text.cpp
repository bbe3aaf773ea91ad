#include <stdexcept>

#include "reports/formats/comparison_text.h"
#include "reports/text/text.h"

namespace nearmetal {
namespace {

std::string signed_milliseconds(double seconds) {
  const std::string text = significant(1e3 * seconds, 3);
  return (seconds > 0 ? "+" : "") + text;
}

std::string time_text(double seconds) {
  if (seconds < 1e-3) return significant(1e6 * seconds, 3) + " us";
  return significant(1e3 * seconds, 4) + " ms";
}

std::string value_text(ProbeUnit unit, const Maybe<double>& value) {
  if (!value) return "?";
  switch (unit) {
    case ProbeUnit::seconds:
      return time_text(*value);
    case ProbeUnit::hertz:
      return significant(1e-6 * *value, 4) + " MHz";
    case ProbeUnit::share:
      return significant(100 * *value, 3) + " %";
    case ProbeUnit::bytes_per_second:
      return significant(1e-9 * *value, 4) + " GB/s";
    case ProbeUnit::flops_per_second:
      return *value >= 1e12 ? significant(1e-12 * *value, 4) + " TFLOP/s"
                            : significant(1e-9 * *value, 4) + " GFLOP/s";
  }
  throw std::logic_error("unnamed ProbeUnit");
}

// A probe that neither side knows says nothing.
std::string seen_text(const std::vector<SeenProbe>& seen) {
  std::vector<std::string> texts;
  for (const SeenProbe& probe : seen) {
    if (!probe.base && !probe.other) continue;
    texts.push_back(probe.name + " " + value_text(probe.unit, probe.base) + " -> " +
                    value_text(probe.unit, probe.other));
  }
  return joined(texts, "; ");
}

std::string share_text(const Maybe<double>& share) {
  return share ? signed_percent(*share, 1) : "-";
}

std::vector<std::string> row_of(const LayerShare& share) {
  const std::string seen = seen_text(share.seen);
  const std::string remark =
      share.statement + (share.statement.empty() || seen.empty() ? "" : "; ") + seen;
  if (!share.sensitive || !share.seconds) return {to_string(share.layer), "-", "-", "-", remark};
  // A share of the difference made of noise would only mislead.
  return {to_string(share.layer), signed_milliseconds(*share.seconds),
          share_text(share.share_of_step),
          share.below_noise ? "-" : share_text(share.share_of_difference), remark};
}

std::string title_of(const Explanation& explanation) {
  const double change = explanation.difference_seconds / explanation.base_step_seconds;
  return "Where the difference of '" + explanation.arm + "' comes from: a step takes " +
         time_text(explanation.new_step_seconds) + " instead of " +
         time_text(explanation.base_step_seconds) + " (" + signed_percent(change, 1) + ")";
}

}  // namespace

TitledTable text_of(const Explanation& explanation, const CompareOptions& options) {
  TitledTable text;
  text.title = title_of(explanation);
  text.table.columns = {
      {"layer"},
      {"ms a step", true},
      {"share of step", true},
      {"share of difference", true},
      {std::string("seen, ") + base_title(options) + " -> " + new_title(options)}};
  for (const LayerShare& share : explanation.layers) text.table.rows.push_back(row_of(share));
  text.table.rows.push_back(
      {"unexplained", signed_milliseconds(explanation.unexplained_seconds),
       signed_percent(explanation.unexplained_seconds / explanation.base_step_seconds, 1),
       share_text(explanation.unexplained_share),
       "effects that the model lacks, and interactions of layers"});
  text.remarks.push_back("model: " + std::string(attribution_model) +
                         "; each layer: what a step of " + base_name(options) +
                         " would take more with this layer of " + new_name(options));
  if (!explanation.noise_seconds) {
    text.remarks.push_back("how much of it is noise is not known: " +
                           explanation.noise_seconds.reason);
  }
  for (size_t i = 0; i < explanation.causes.size(); ++i) {
    const KnownCause& cause = explanation.causes[i];
    text.remarks.push_back("likely cause " + std::to_string(i + 1) + ", " + to_string(cause.layer) +
                           ": " + cause.seen + ": " + cause.hint);
  }
  return text;
}

}  // namespace nearmetal
