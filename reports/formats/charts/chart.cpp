#include "reports/formats/charts/chart.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <sstream>
#include <stdexcept>

namespace nearmetal {
namespace {

std::string replaced(std::string text, const std::string& what, const std::string& with) {
  for (size_t at = text.find(what); at != text.npos; at = text.find(what, at + with.size())) {
    text.replace(at, what.size(), with);
  }
  return text;
}

constexpr size_t line_length = 24;  // of labels beside a plot, which shall keep its width

std::string cut(const std::string& text, size_t length) {
  return text.size() > length ? text.substr(0, length - 2) + ".." : text;
}

std::string plain_label(const std::string& text) {
  std::string label = cut(text, 2 * line_length);
  for (char& c : label) {
    const bool plain = std::isalnum(static_cast<unsigned char>(c)) != 0;
    if (!plain && std::string(" .,:;+-_|#/()*").find(c) == std::string::npos) c = '_';
  }
  return label;
}

// Broken after the last comma where that does, else at the last space that leaves the first line
// short enough.
std::string on_two_lines(const std::string& label) {
  if (label.size() <= line_length) return label;
  size_t end = label.rfind(", ", line_length - 1);
  const bool fits = end != label.npos && label.size() - end - 2 <= line_length;
  end = fits ? end + 1 : label.rfind(' ', line_length);
  const size_t next = end == label.npos ? line_length : end + 1;
  return label.substr(0, std::min(end, line_length)) + "\\n" + cut(label.substr(next), line_length);
}

}  // namespace

std::string script_with_data(const Chart& chart) {
  return "$data << EOD\n" + chart.csv + "EOD\n" + chart.script;
}

std::string script_with_files(const Chart& chart) {
  return "set output '" + chart.name + ".svg'\n" +
         replaced(chart.script, "$data", "'" + chart.name + ".csv'");
}

std::string chart_head(int height) {
  return "set terminal svg size 480," + std::to_string(height) +
         " dynamic noenhanced font 'sans-serif,14'\n"
         "set encoding utf8\n"
         "set datafile separator comma\n"
         "set datafile columnheaders\n"
         "set border 3\n"
         "set tics nomirror scale 0.5 noenhanced\n"
         "set style line 1 lc rgb '#888888' lw 0.5\n"
         "set key off\n";
}

std::string row_axis(const std::vector<std::string>& rows) {
  std::string tics;
  for (size_t i = 0; i < rows.size(); ++i) {
    tics +=
        (i > 0 ? ", \"" : "\"") + on_two_lines(plain_label(rows[i])) + "\" " + std::to_string(i);
  }
  return "set ytics (" + tics + ") scale 0\nset yrange [" +
         plain_number(static_cast<double>(rows.size()) - 0.4) + ":-0.6]\n";
}

int height_of_rows(size_t rows) { return 100 + 40 * static_cast<int>(rows); }

std::string quoted_label(const std::string& text) { return '"' + plain_label(text) + '"'; }

std::string colour(size_t index) {
  constexpr std::array colours = {"#2f7fc1", "#d9731a", "#2a9d6f", "#b05cc6",
                                  "#c9504b", "#8a8f00", "#7f7f7f", "#c26a93"};
  return colours[index % colours.size()];
}

std::string fill(Kind kind, const std::string& colour) {
  const std::string edge = " border lc rgb '" + colour + "' lc rgb '" + colour + "'";
  switch (kind) {
    case Kind::measured:
      return "fs solid 0.7" + edge;
    case Kind::emulated:
      return "fs pattern 4" + edge;
    case Kind::predicted:
      return "fs empty" + edge;
  }
  throw std::logic_error("unnamed Kind");
}

std::string point(Kind kind, const std::string& colour) {
  const std::string look = " ps 0.9 lw 1.5 lc rgb '" + colour + "'";
  switch (kind) {
    case Kind::measured:
      return "pt 7" + look;
    case Kind::emulated:
      return "pt 6" + look;
    case Kind::predicted:
      return "pt 2" + look;
  }
  throw std::logic_error("unnamed Kind");
}

double tick_step(double length, int most_ticks) {
  const double least = length / most_ticks;
  const double power = std::pow(10, std::floor(std::log10(least)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= least) return factor * power;
  }
  return 10 * power;
}

AxisEnd axis_end(double largest_value, double largest_whisker) {
  const double most = 2 * largest_value;
  if (most > 0 && largest_whisker > most) return {most, true};
  return {std::max(largest_value, largest_whisker), false};
}

std::string cut_note(const AxisEnd& end) {
  return end.cuts
             ? "set title 'whiskers are cut at the edge: the table has all of them' font ',12'\n"
             : "";
}

int height_of_note(const AxisEnd& end) { return end.cuts ? 24 : 0; }

std::string plain_number(double value) {
  std::ostringstream text;
  text.precision(10);
  text << value;
  return text.str();
}

}  // namespace nearmetal
