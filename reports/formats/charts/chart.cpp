#include "reports/formats/charts/chart.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

namespace nearmetal {
namespace {

constexpr double room_of_value = 0.2;  // behind the longest bar

std::string csv_number(double value) { return shortest(value, 10); }

// Behind what is drawn of it, and behind a line that is near.
double place_of_value(const Bar& bar, const Bars& bars) {
  double end = bar.figure.interval ? std::max(bar.figure.value, bar.figure.interval->upper)
                                   : bar.figure.value;
  for (const double circle : bar.circles) end = std::max(end, circle);
  const bool meets_line = bars.line && end < *bars.line && end > (1 - room_of_value) * *bars.line;
  return meets_line ? *bars.line : end;
}

double end_of(const Bars& bars) {
  std::vector<Estimate> figures;
  for (const Bar& bar : bars.bars) {
    figures.push_back(bar.figure);
    for (const double circle : bar.circles) figures.push_back({circle});
  }
  return axis_end(figures, bars.line.value_or(0));
}

}  // namespace

Chart missing_chart(Chart chart, const std::string& why) {
  chart.missing = why;
  return chart;
}

std::string csv_of(const Chart& chart) {
  TextStream csv;
  const Plot& first = chart.plots.front();
  const auto name = [](const std::string& title, const char* without) {
    return csv_cell(title.empty() ? without : title);
  };
  csv << (chart.plots.size() > 1 ? "panel," : "") << "series,kind,mark,"
      << (first.rows ? "row," + name(first.x.title, "value")
                     : name(first.x.title, "x") + "," + name(first.y.title, "y"))
      << ",lower,upper,text\n";
  for (const Plot& plot : chart.plots) {
    for (const Series& series : plot.series) {
      if (series.look == Look::labels) continue;
      for (const Mark& mark : series.marks) {
        if (chart.plots.size() > 1) csv << csv_cell(plot.title) << ',';
        csv << csv_cell(series.title) << ',' << to_string(series.kind) << ','
            << to_string(series.look) << ',';
        if (plot.rows) {
          csv << csv_cell(plot.y.ticks.at(std::lround(mark.y)).label) << ',' << csv_number(mark.x);
        } else {
          csv << csv_number(mark.x) << ',' << csv_number(mark.y);
        }
        const auto [lower, upper] = bounds_of(mark.interval);
        csv << ',' << (lower ? csv_number(*lower) : "") << ',' << (upper ? csv_number(*upper) : "")
            << ',' << (mark.text.empty() ? "" : csv_cell(mark.text)) << '\n';
      }
    }
  }
  return csv.str();
}

double axis_end(const std::vector<Estimate>& figures, double also) {
  double value = also, whisker = 0;
  for (const Estimate& figure : figures) {
    value = std::max(value, figure.value);
    if (figure.interval) whisker = std::max(whisker, figure.interval->upper);
  }
  return value > 0 ? std::min(2 * value, std::max(value, whisker)) : std::max(whisker, 1.0);
}

std::vector<Tick> whole_ticks(double first, double last) {
  constexpr int most_ticks = 12;
  std::vector<Tick> ticks;
  const double step = std::ceil(tick_step(std::max(1.0, last - first), most_ticks));
  for (int tick = 0; first + tick * step <= last; ++tick) {
    const double value = first + tick * step;
    ticks.push_back({value, shortest(value, 10)});
  }
  return ticks;
}

Axis row_axis(const std::vector<std::string>& rows) {
  Axis axis{.begin = static_cast<double>(rows.size()) - 0.4, .end = -0.6};
  for (const std::string& row : rows) {
    axis.ticks.push_back({static_cast<double>(axis.ticks.size()), row});
  }
  return axis;
}

int height_of_rows(size_t rows) { return 20 + 40 * static_cast<int>(rows); }

double tick_step(double length, int most_ticks) {
  const double least = length / most_ticks;
  const double power = std::pow(10, std::floor(std::log10(least)));
  for (const double factor : {1.0, 2.0, 2.5, 5.0}) {
    if (factor * power >= least) return factor * power;
  }
  return 10 * power;
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

// Bars of a row stand below each other, one for each side; a series for each side and kind that
// occur, so that the legend names no other.
Chart bar_chart(Chart chart, const Bars& bars, const std::string& missing) {
  if (bars.bars.empty()) return missing_chart(std::move(chart), missing);
  const double end = end_of(bars);
  const size_t sides = bars.sides.size();
  const double half_height = 0.38 / static_cast<double>(sides);
  Plot plot{.x = {.title = bars.axis, .end = (1 + room_of_value) * end},
            .y = row_axis(bars.rows),
            .rows = true,
            .half_height = 0.9 * half_height,
            .height = height_of_rows(bars.rows.size() * (sides + 1) / 2),
            .rule = bars.line};
  Series runs{.title = "single runs", .rings = true, .radius = 2.5};
  Series values{.look = Look::labels};
  for (const Bar& bar : bars.bars) {
    const std::string& side = bars.sides[bar.side];
    const std::string title =
        bar.kind == Kind::measured ? side : side + (side.empty() ? "" : ", ") + to_string(bar.kind);
    auto series = std::ranges::find(plot.series, title, &Series::title);
    if (series == plot.series.end()) {
      series = plot.series.insert(
          series, {.title = title, .look = Look::bars, .colour = bar.side, .kind = bar.kind});
    }
    double y =
        static_cast<double>(bar.row) - 0.38 + half_height * static_cast<double>(2 * bar.side + 1);
    series->marks.push_back({bar.figure.value, y, bar.figure.interval});
    for (const double circle : bar.circles) runs.marks.push_back({circle, y});
    // A whisker that is cut goes on to the edge: its value is above it.
    if (bar.figure.interval && bar.figure.interval->upper > end) y -= 0.6 * half_height;
    values.marks.push_back(
        {std::min(end, place_of_value(bar, bars)), y, {}, value_text(bar.figure)});
  }
  if (!runs.marks.empty()) plot.series.push_back(std::move(runs));
  plot.series.push_back(std::move(values));
  chart.plots = {std::move(plot)};
  return chart;
}

}  // namespace nearmetal
