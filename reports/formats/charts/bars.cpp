#include "reports/formats/charts/bars.h"

#include <algorithm>
#include <set>
#include <sstream>

#include "reports/text/text.h"

namespace nearmetal {
namespace {

std::string line_at(double value) {
  const std::string at = plain_number(value);
  return "set arrow 1 from first " + at + ", graph 0 to first " + at +
         ", graph 1 nohead dt 2 lw 1.5 lc rgb 'black' front\n";
}

AxisEnd axis_end_of(const Bars& bars) {
  double value = bars.line.value_or(0), whisker = 0;
  for (const Bar& bar : bars.bars) {
    value = std::max(value, bar.value);
    for (const double circle : bar.circles) value = std::max(value, circle);
    if (bar.whisker) whisker = std::max(whisker, bar.whisker->upper);
  }
  return axis_end(value, whisker);
}

}  // namespace

// Bars of a row stand beside each other, one for each side.
std::string csv_of(const Bars& bars) {
  std::ostringstream csv;
  csv.precision(10);
  csv << "position,half_height,label,side,kind,mark,value,lower,upper\n";
  const double half_height = 0.38 / static_cast<double>(bars.sides.size());
  for (const Bar& bar : bars.bars) {
    const double position =
        static_cast<double>(bar.row) - 0.38 + half_height * static_cast<double>(2 * bar.side + 1);
    const auto add = [&](const char* mark, double value, const Interval& whisker) {
      csv << position << ',' << 0.9 * half_height << ',' << quoted_label(bar.label) << ','
          << bar.side << ',' << to_string(bar.kind) << ',' << mark << ',' << value << ','
          << whisker.lower << ',' << whisker.upper << '\n';
    };
    add("bar", bar.value, bar.whisker ? *bar.whisker : Interval{bar.value, bar.value});
    for (const double circle : bar.circles) add("run", circle, {circle, circle});
  }
  return csv.str();
}

// One element of the plot for each side and kind that occur, so that the key names no other.
std::string script_of(const Bars& bars) {
  std::set<std::pair<size_t, Kind>> looks;
  for (const Bar& bar : bars.bars) looks.insert({bar.side, bar.kind});
  std::string plots;
  for (const auto& [side, kind] : looks) {
    const std::string& name = bars.sides[side];
    plots += "$data using (strcol('mark') eq 'bar' && column('side') == " + std::to_string(side) +
             " && strcol('kind') eq '" + to_string(kind) +
             "' ? column('value') / 2 : NaN):'position':(column('value') / 2):'half_height' "
             "with boxxy " +
             fill(kind, colour(side)) + " title '" + name + (name.empty() ? "" : ", ") +
             to_string(kind) + "', \\\n  ";
  }
  const AxisEnd end = axis_end_of(bars);
  constexpr int key_line_height = 20;
  return chart_head(height_of_rows(bars.rows.size() * (bars.sides.size() + 1) / 2) +
                    key_line_height * static_cast<int>(looks.size()) + height_of_note(end)) +
         row_axis(bars.rows) + "set xrange [0:" + (end.cuts ? plain_number(end.at) : "*") +
         "]\nset xtics " + plain_number(tick_step(end.at, end.at < 1000 ? 5 : 4)) +
         "\nset xlabel '" + bars.axis +
         "'\nset grid xtics ls 1\nset key on above right horizontal Left reverse samplen 1.5\n" +
         (bars.line ? line_at(*bars.line) : "") + cut_note(end) + "plot " + plots +
         "$data using (strcol('mark') eq 'bar' && column('upper') > column('lower') ? "
         "column('value') : NaN):'position':'lower':'upper' with xerrorbars pt 0 lw 1.5 "
         "lc rgb 'black' notitle, \\\n  "
         "$data using (strcol('mark') eq 'run' ? column('value') : NaN):'position' with points "
         "pt 6 ps 0.5 lc rgb 'black' notitle\n";
}

}  // namespace nearmetal
