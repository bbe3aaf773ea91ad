#include "reports/formats/charts/chart.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <set>

namespace nearmetal {
namespace {

constexpr size_t line_length = 24;     // of labels beside a plot, which shall keep its width
constexpr double room_of_value = 0.2;  // behind the longest bar

std::string cut_with_dots(const std::string& text, size_t length) {
  return text.size() > length ? text.substr(0, length - 2) + ".." : text;
}

std::string plain_label(const std::string& text) {
  std::string label = cut_with_dots(text, 2 * line_length);
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
  return label.substr(0, std::min(end, line_length)) + "\\n" +
         cut_with_dots(label.substr(next), line_length);
}

std::string line_at(double value) {
  const std::string at = plot_number(value);
  return "set arrow 1 from first " + at + ", graph 0 to first " + at +
         ", graph 1 nohead dt 2 lw 1.5 lc rgb 'black' front\n";
}

// Behind what is drawn of it, and behind a line that is near.
double place_of_value(const Bar& bar, const Bars& bars) {
  double end = std::max(bar.figure.value, whisker_of(bar.figure).upper);
  for (const double circle : bar.circles) end = std::max(end, circle);
  const bool meets_line = bars.line && end < *bars.line && end > (1 - room_of_value) * *bars.line;
  return meets_line ? *bars.line : end;
}

std::string filled(const std::string& style, const std::string& colour) {
  return "fs " + style + " border lc rgb '" + colour + "' lc rgb '" + colour + "'";
}

AxisEnd axis_end_of(const Bars& bars) {
  std::vector<Estimate> figures;
  for (const Bar& bar : bars.bars) {
    figures.push_back(bar.figure);
    for (const double circle : bar.circles) figures.push_back({circle});
  }
  return axis_end(figures, bars.line.value_or(0));
}

// Bars of a row stand beside each other, one for each side.
std::string csv_of(const Bars& bars) {
  const double end = axis_end_of(bars).value;
  TextStream csv = csv_with("position,half_height,label,side,kind,mark,value,lower,upper,text");
  const double half_height = 0.38 / static_cast<double>(bars.sides.size());
  for (const Bar& bar : bars.bars) {
    double position =
        static_cast<double>(bar.row) - 0.38 + half_height * static_cast<double>(2 * bar.side + 1);
    const auto add = [&](const char* mark, double value, const Interval& whisker,
                         const std::string& text) {
      csv << position << ',' << 0.9 * half_height << ',' << quoted_label(bar.label) << ','
          << bar.side << ',' << to_string(bar.kind) << ',' << mark << ',' << value << ','
          << whisker.lower << ',' << whisker.upper << ',' << text << '\n';
    };
    add("bar", bar.figure.value, whisker_of(bar.figure), "");
    for (const double circle : bar.circles) add("run", circle, {circle, circle}, "");
    const double label = std::min(end, place_of_value(bar, bars));
    // A whisker that is cut goes on to the edge: its value is above it.
    if (bar.figure.interval && bar.figure.interval->upper > end) position -= 0.6 * half_height;
    add("text", label, {label, label}, significant(bar.figure.value));
  }
  return csv.str();
}

// One element of the plot for each side and kind that occur, so that the key names no other.
std::string script_of(const Bars& bars) {
  std::set<std::pair<size_t, Kind>> styles;
  for (const Bar& bar : bars.bars) styles.insert({bar.side, bar.kind});
  std::string plots;
  for (const auto& [side, kind] : styles) {
    const std::string& name = bars.sides[side];
    plots += "$data using (strcol('mark') eq 'bar' && column('side') == " + std::to_string(side) +
             " && strcol('kind') eq '" + to_string(kind) +
             "' ? column('value') / 2 : NaN):'position':(column('value') / 2):'half_height' "
             "with boxxy " +
             fill(kind, colour(side)) + " title '" + name + (name.empty() ? "" : ", ") +
             to_string(kind) + "', \\\n  ";
  }
  const AxisEnd end = axis_end_of(bars);
  constexpr int key_height = 20;
  return chart_head(height_of_rows(bars.rows.size() * (bars.sides.size() + 1) / 2) +
                        key_height * static_cast<int>(styles.size()),
                    end) +
         row_axis(bars.rows) +
         axis('x', 0, (1 + room_of_value) * end.value, tick_step(end.value, most_ticks(end.value)),
              bars.axis) +
         "set grid xtics ls 1\n" + key_line + (bars.line ? line_at(*bars.line) : "") + "plot " +
         plots +
         "$data using (strcol('mark') eq 'bar' && column('upper') > column('lower') ? "
         "column('value') : NaN):'position':'lower':(drawn(column('upper'))) with xerrorbars pt 0 "
         "lw 1.5 "
         "lc rgb 'black' notitle, \\\n  "
         "$data using (strcol('mark') eq 'run' ? column('value') : NaN):'position' with points "
         "pt 6 ps 0.5 lc rgb 'black' notitle, \\\n  "
         "$data using (strcol('mark') eq 'text' ? column('value') : NaN):'position':"
         "(strcol('text')) with labels left offset 0.7,0 font ',12' notitle\n";
}

}  // namespace

Chart missing_chart(Chart chart, const std::string& why) {
  chart.missing = why;
  return chart;
}

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
         plot_number(static_cast<double>(rows.size()) - 0.4) + ":-0.6]\n";
}

TextStream csv_with(const char* header) {
  TextStream csv;
  csv.precision(10);
  csv << header << '\n';
  return csv;
}

int height_of_rows(size_t rows) { return 100 + 40 * static_cast<int>(rows); }

std::string quoted_label(const std::string& text) { return '"' + plain_label(text) + '"'; }

std::string colour(size_t index) {
  constexpr std::array colours = {"#2f7fc1", "#d9731a", "#2a9d6f", "#b05cc6",
                                  "#c9504b", "#8a8f00", "#7f7f7f", "#c26a93"};
  return colours[index % colours.size()];
}

std::string fill(Kind kind, const std::string& colour) {
  constexpr std::array styles = {"solid 0.7", "pattern 4", "empty", "pattern 6"};
  return filled(styles.at(static_cast<size_t>(kind)), colour);
}

std::string outline(const std::string& colour) { return filled("empty", colour); }

std::string point(Kind kind, const std::string& colour) {
  constexpr std::array types = {"7", "6", "2", "4"};
  return std::string("pt ") + types.at(static_cast<size_t>(kind)) + " ps 0.9 lw 1.5 lc rgb '" +
         colour + "'";
}

// Vectors draw them: gnuplot's own come with a white spot behind each point.
std::string whiskers(const std::string& data, const std::string& position,
                     const std::string& colour) {
  return data + " using " + position +
         ":'lower':(0):(drawn(column('upper')) - column('lower')) with vectors heads size screen "
         "0.01,90 lw 1.5 lc rgb '" +
         colour + "' notitle";
}

double tick_step(double length, int most_ticks) {
  const double least = length / most_ticks;
  const double power = std::pow(10, std::floor(std::log10(least)));
  for (const double factor : {1.0, 2.0, 2.5, 5.0}) {
    if (factor * power >= least) return factor * power;
  }
  return 10 * power;
}

int most_ticks(double largest) {
  constexpr size_t characters = 36;  // along an axis
  return static_cast<int>(
      std::clamp<size_t>(characters / (plot_number(std::floor(largest)).size() + 3), 3, 6));
}

Interval whisker_of(const Estimate& figure) {
  return figure.interval ? *figure.interval : Interval{figure.value, figure.value};
}

AxisEnd axis_end(const std::vector<Estimate>& figures, double also) {
  double value = also, whisker = 0;
  for (const Estimate& figure : figures) {
    value = std::max(value, figure.value);
    whisker = std::max(whisker, whisker_of(figure).upper);
  }
  const double most = 2 * value;
  if (most > 0 && whisker > most) return {most, true};
  return {std::max(value, whisker), false};
}

// Lines that end millions of axes away are left out by gnuplot.
std::string chart_head(int height, const AxisEnd& end) {
  constexpr int height_of_note = 24;
  const std::string most = plot_number(2 * end.value);
  return chart_head(height + (end.cuts ? height_of_note : 0)) +
         (end.cuts ? "set title 'whiskers are cut: see the table' font ',12'\n" : "") +
         "drawn(x) = x > " + most + " ? " + most + " : x\n";
}

std::string axis(char name, double begin, double end, double tick, const std::string& title) {
  const std::string set = std::string("set ") + name;
  return set + "range [" + plot_number(begin) + ":" + plot_number(end) + "]\n" + set + "tics " +
         plot_number(tick) + "\n" + set + "label '" + title + "'\n";
}

std::string left_out_text(size_t left_out) {
  return left_out == 0 ? "" : " " + std::to_string(left_out) + " more are not shown.";
}

std::string counts_text(const TextTable& table, const std::string& column) {
  const auto place = std::ranges::find(table.columns, column, &TextTable::Column::title);
  const auto index = static_cast<size_t>(place - table.columns.begin());
  const std::string unit = column == "n" ? "" : " " + column;
  std::string text;
  std::set<std::string> counts;
  for (const auto& row : table.rows) {
    counts.insert(row.at(index) + unit);
    text += (text.empty() ? "" : ", ") + row.front() + " " + row.at(index) + unit;
  }
  if (counts.empty()) return "";
  return counts.size() == 1 ? " n = " + *counts.begin() + "." : " n: " + text + ".";
}

Chart bar_chart(Chart chart, const Bars& bars, const std::string& missing) {
  if (bars.bars.empty()) return missing_chart(std::move(chart), missing);
  chart.csv = csv_of(bars);
  chart.script = script_of(bars);
  return chart;
}

}  // namespace nearmetal
