#include "reports/text/warning_text.h"

#include <array>
#include <charconv>
#include <cmath>
#include <string_view>

#include "reports/text/text.h"

namespace nearmetal {
namespace {

std::string number_text(const Figure& figure) {
  switch (figure.unit) {
    case FigureUnit::share:
      return significant(100 * figure.value, 3);
    case FigureUnit::count:
      return std::to_string(std::llround(figure.value));
    default:
      return significant(figure.value, 3);
  }
}

std::string unit_text(FigureUnit unit) {
  constexpr std::array texts = {" %", "", " CPUs", " s", " times"};
  return texts.at(static_cast<size_t>(unit));
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
  if (error != std::errc{}) return std::nullopt;
  text.remove_prefix(end - text.data());
  return number;
}

void take_job(std::string_view& text, Warning& warning) {
  std::string_view rest = text;
  const std::optional<int64_t> number = take_number("job ", rest);
  if (!number || !rest.starts_with(": ")) return;
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

}  // namespace

std::string figure_text(const Figure& figure) {
  return number_text(figure) + unit_text(figure.unit);
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

std::string told_text(const Warning& warning) { return givers_text(warning) + warning.text; }

void take_told_text(const std::string& told, Warning& warning) {
  std::string_view text = told;
  if (const std::string givers = givers_text(warning); text.starts_with(givers)) {
    text.remove_prefix(givers.size());
  }
  if (!warning.job && !warning.rank) {
    take_job(text, warning);
    take_rank(text, warning);
  }
  warning.text = text;
}

}  // namespace nearmetal
