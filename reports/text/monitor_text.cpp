#include "reports/text/monitor_text.h"

#include <charconv>
#include <string_view>

#include "reports/text/warning_text.h"

namespace nearmetal {
namespace {

constexpr const char* unknown_code = "unknown";

const std::string not_known = " is not known: ";

// What a sentence has in the place of the subject and the figure; none: it is not of this kind.
std::optional<MonitorReason> read_by(const MonitorReasonKind& kind, std::string_view sentence) {
  const size_t before = sentence.find(kind.before);
  if (before == sentence.npos || !sentence.ends_with(kind.behind)) return std::nullopt;
  MonitorReason reason{.code = kind.code};
  if (before > 0) reason.subject = sentence.substr(0, before);
  const char* number = sentence.data() + before + std::string_view(kind.before).size();
  double value = 0;
  const auto [end, error] = std::from_chars(number, sentence.data() + sentence.size(), value);
  if (error != std::errc{}) return std::nullopt;
  reason.figure = {kind.unit == FigureUnit::share ? value / 100 : value, kind.limit, kind.unit};
  return text_of(reason) == sentence ? std::optional(reason) : std::nullopt;
}

}  // namespace

std::string text_of(const MonitorReason& reason) {
  const MonitorReasonKind* kind = monitor_reason_kind(reason.code);
  if (kind != nullptr && reason.figure) {
    return reason.subject.value_or("") + kind->before + figure_text(*reason.figure) + kind->behind;
  }
  return (reason.subject ? *reason.subject + not_known : "") + reason.why.value_or("");
}

std::vector<std::string> texts_of(const std::vector<MonitorReason>& reasons) {
  std::vector<std::string> texts;
  for (const MonitorReason& reason : reasons) texts.push_back(text_of(reason));
  return texts;
}

MonitorReason reason_from(const std::string& sentence) {
  for (const MonitorReasonKind& kind : monitor_reason_kinds()) {
    if (const auto reason = read_by(kind, sentence)) return *reason;
  }
  const size_t end = sentence.find(not_known);
  if (end == sentence.npos) return {.code = unknown_code, .why = sentence};
  return {.code = unknown_code,
          .subject = sentence.substr(0, end),
          .why = sentence.substr(end + not_known.size())};
}

}  // namespace nearmetal
