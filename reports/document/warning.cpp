#include "reports/document/warning.h"

#include <charconv>

#include "base/text.h"
#include "base/text_table.h"
#include "reports/document/types.h"

namespace nearmetal {
namespace {

constexpr double throttled_may_be = 0.01;  // of the samples, or of the periods of a quota
constexpr double clock_may_drift = 0.018;  // from the first quarter of the window to the last

constexpr MonitorReasonKind clocks(const char* code, const char* how,
                                   std::optional<MonitorVerdict> verdict) {
  return {code, how, " of the samples", FigureUnit::share, throttled_may_be, verdict};
}

// A power cap is how a GPU at its limit works, and part of what is compared.
constexpr std::array kinds = {
    MonitorReasonKind{"gpu_processes", "", " processes on the GPU at once", FigureUnit::count, 1,
                      MonitorVerdict::shared},
    MonitorReasonKind{"cpu_steal", "the hypervisor gave ", " of the CPUs' time to others (steal)",
                      FigureUnit::share, steal_may_be, MonitorVerdict::shared},
    MonitorReasonKind{"cpus_busy_with_others", "other processes kept ", " busy", FigureUnit::cpus,
                      others_may_use, MonitorVerdict::shared},
    clocks("clocks_set_limit", "clocks held at a set limit in ", {}),
    clocks("clocks_power_limit", "clocks lowered by the power limit in ", {}),
    clocks("clocks_hardware", "clocks halved or worse by the hardware (heat, power or brake) in ",
           MonitorVerdict::throttled),
    clocks("clocks_group", "clocks lowered to those of a group of GPUs in ", {}),
    clocks("clocks_heat_driver", "clocks lowered by the driver for heat in ",
           MonitorVerdict::throttled),
    clocks("clocks_heat_hardware", "clocks lowered by the hardware for heat in ",
           MonitorVerdict::throttled),
    clocks("clocks_power_brake", "clocks lowered by the power brake of the system in ",
           MonitorVerdict::throttled),
    MonitorReasonKind{"quota_held", "the control group's quota of CPUs stopped threads in ",
                      " of its periods", FigureUnit::share, throttled_may_be,
                      MonitorVerdict::throttled},
    MonitorReasonKind{"clock_changed", " changed by ",
                      " from the first quarter of the window to the last", FigureUnit::share,
                      clock_may_drift, MonitorVerdict::drifted},
    MonitorReasonKind{"link_slow",
                      "the rate of the PCIe link stayed ",
                      " below what GPU and slot can",
                      FigureUnit::share,
                      0,
                      {}},
    MonitorReasonKind{"memory_errors", "", " uncorrected memory errors", FigureUnit::count, 0, {}},
    MonitorReasonKind{"link_errors", "", " NVLink replays or recoveries", FigureUnit::count, 0, {}},
};

MonitorVerdict verdict_of(const MonitorReason& reason) {
  if (!reason.figure) return MonitorVerdict::unknown;
  const MonitorReasonKind* kind = monitor_reason_kind(reason.code);
  const bool above = std::abs(reason.figure->value) > reason.figure->limit;
  return kind != nullptr && above ? kind->verdict.value_or(MonitorVerdict::clean)
                                  : MonitorVerdict::clean;
}

std::string number_text(const Figure& figure) {
  if (figure.unit == FigureUnit::count) return fixed(figure.value, 0);
  return significant(figure.unit == FigureUnit::share ? 100 * figure.value : figure.value, 3);
}

std::string givers_text(const Warning& warning) {
  std::string text;
  for (const std::string& giver : givers_of(warning)) text += giver + ": ";
  return text;
}

// Takes `word` and the number behind it from the start of a text.
std::optional<int64_t> take_number(std::string_view word, std::string_view& text) {
  if (!text.starts_with(word)) return std::nullopt;
  const char* begin = text.data() + word.size();
  int64_t number = 0;
  const auto [end, error] = std::from_chars(begin, text.data() + text.size(), number);
  if (error != std::errc{} || number < 0) return std::nullopt;
  text.remove_prefix(end - text.data());
  return number;
}

void take_job(std::string_view& text, Warning& warning) {
  std::string_view rest = text;
  const std::optional<int64_t> number = take_number("job ", rest);
  if (number.value_or(0) < 1 || !rest.starts_with(": ")) return;
  warning.job = *number - 1;
  text = rest.substr(2);
}

void take_rank(std::string_view& text, Warning& warning) {
  std::string_view rest = text;
  const std::optional<int64_t> rank = take_number("rank ", rest);
  const std::optional<int64_t> stage = take_number(", stage ", rest);
  const size_t end = rest.find("): ");
  if (!rank || !rest.starts_with(" (") || end == rest.npos) return;
  warning.rank = rank;
  warning.stage = stage;
  warning.host = rest.substr(2, end - 2);
  text = rest.substr(end + 3);
}

const std::string code_of_verdicts = "monitor_",
                  begin_of_verdict = "in the timed window: ", between_reasons = "; ";

const std::string not_known = " is not known: ";

// The subject and the figure of a sentence; none where it is not of this kind.
std::optional<MonitorReason> read_by(const MonitorReasonKind& kind, std::string_view sentence) {
  const size_t before = sentence.find(kind.before);
  if (before == sentence.npos || !sentence.ends_with(kind.behind)) return std::nullopt;
  MonitorReason reason{.code = kind.code};
  if (before > 0) reason.subject = sentence.substr(0, before);
  const char* number = sentence.data() + before + std::string_view(kind.before).size();
  double value = 0;
  const auto [end, error] = std::from_chars(number, sentence.data() + sentence.size(), value);
  if (error != std::errc{} || !std::isfinite(value)) return std::nullopt;
  reason.figure = {kind.unit == FigureUnit::share ? value / 100 : value, kind.limit, kind.unit};
  return text_of(reason) == sentence ? std::optional(reason) : std::nullopt;
}

// The one that is furthest above its limit, of those that make the verdict.
std::optional<Figure> worst_figure(const std::vector<MonitorReason>& reasons) {
  std::optional<Figure> worst;
  for (const MonitorReason& reason : reasons) {
    if (!reason.figure || verdict_of(reason) == MonitorVerdict::clean) continue;
    if (!worst || is_worse(*reason.figure, *worst)) worst = reason.figure;
  }
  return worst;
}

// The figure of a warning_of() that an earlier report has as text alone.
std::optional<Figure> figure_of_verdict(const std::string& code, const std::string& text) {
  if (!code.starts_with(code_of_verdicts) || !text.starts_with(begin_of_verdict)) return {};
  const auto sentences = split(text.substr(begin_of_verdict.size()), between_reasons);
  return worst_figure(transformed(sentences, reason_from));
}

}  // namespace

std::span<const MonitorReasonKind> monitor_reason_kinds() { return kinds; }

const MonitorReasonKind* monitor_reason_kind(std::string_view code) {
  return find_in(kinds, code, &MonitorReasonKind::code);
}

MonitorVerdict verdict_of(const std::vector<MonitorReason>& reasons) {
  for (const auto verdict : {MonitorVerdict::shared, MonitorVerdict::throttled,
                             MonitorVerdict::drifted, MonitorVerdict::unknown}) {
    const bool any = std::ranges::any_of(
        reasons, [&](const MonitorReason& reason) { return verdict_of(reason) == verdict; });
    if (any) return verdict;
  }
  return MonitorVerdict::clean;
}

const MonitoredSeries* series_named(const Monitoring& monitoring, const std::string& name) {
  return find_in(monitoring.series, name, &MonitoredSeries::name);
}

std::string figure_text(const Figure& figure) {
  constexpr std::array units = {" %", "", " CPUs", " s", " times"};
  return number_text(figure) + units.at(static_cast<size_t>(figure.unit));
}

std::string figures_text(const Figure& least, const Figure& most) {
  const std::string first = number_text(least);
  return (first == number_text(most) ? "" : first + " to ") + figure_text(most);
}

std::string rank_text(int64_t rank, std::optional<int64_t> stage, const std::string& host) {
  return "rank " + std::to_string(rank) + (stage ? ", stage " + std::to_string(*stage) : "") +
         " (" + host + ")";
}

std::vector<std::string> givers_of(const Warning& warning) {
  std::vector<std::string> givers;
  if (warning.job) givers.push_back("job " + std::to_string(*warning.job + 1));
  if (warning.rank)
    givers.push_back(rank_text(*warning.rank, warning.stage, warning.host.value_or("")));
  return givers;
}

std::string attributed_text(const Warning& warning) { return givers_text(warning) + warning.text; }

void set_attributed_text(const std::string& attributed, Warning& warning) {
  std::string_view text = attributed;
  if (const std::string givers = givers_text(warning); text.starts_with(givers)) {
    text.remove_prefix(givers.size());
  }
  if (!warning.job && !warning.rank) {
    take_job(text, warning);
    take_rank(text, warning);
  }
  warning.text = text;
  if (!warning.figure) warning.figure = figure_of_verdict(warning.code, warning.text);
}

Warning warning_of(const Monitoring& monitoring) {
  return {.code = code_of_verdicts + to_string(monitoring.verdict),
          .text = begin_of_verdict + joined(texts_of(monitoring.reasons), between_reasons),
          .figure = worst_figure(monitoring.reasons)};
}

std::string text_of(const MonitorReason& reason) {
  const MonitorReasonKind* kind = monitor_reason_kind(reason.code);
  if (kind != nullptr && reason.figure) {
    return reason.subject.value_or("") + kind->before + figure_text(*reason.figure) + kind->behind;
  }
  return (reason.subject ? *reason.subject + not_known : "") + reason.why.value_or("");
}

std::vector<std::string> texts_of(const std::vector<MonitorReason>& reasons) {
  return transformed(reasons, [](const MonitorReason& reason) { return text_of(reason); });
}

MonitorReason reason_from(const std::string& sentence) {
  for (const MonitorReasonKind& kind : monitor_reason_kinds()) {
    if (const auto reason = read_by(kind, sentence)) return *reason;
  }
  const size_t end = sentence.find(not_known);
  if (end == sentence.npos) return {.code = unknown_reason, .why = sentence};
  return {.code = unknown_reason,
          .subject = sentence.substr(0, end),
          .why = sentence.substr(end + not_known.size())};
}

std::string unsupported_text(const UnsupportedArm& arm) {
  return printable(arm.name) + ": unsupported: " + printable(arm.reason);
}

}  // namespace nearmetal
