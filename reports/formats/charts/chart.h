// One chart: its data, how gnuplot draws them, and the same as a table.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/text.h"
#include "base/text_table.h"
#include "reports/document/types.h"

namespace nearmetal {

constexpr double milliseconds = 1e3;  // of a second

struct Chart {
  std::string name;  // of files: "throughput"
  std::string title;
  std::string caption{};  // what is shown, with n and the interval
  std::string missing{};  // why there is nothing to show; then all that follows is empty
  std::string csv{};      // a header line, then the data
  std::string script{};   // of gnuplot; the data stand as $data
  TextTable table{};      // what the chart shows, for those who cannot see it
};

/// A chart that cannot be drawn, and why.
Chart missing_chart(Chart chart, const std::string& why);

/// A script that holds its data, and writes an SVG to its standard output.
std::string script_with_data(const Chart& chart);
/// A script that reads NAME.csv from the current folder, and writes NAME.svg there.
std::string script_with_files(const Chart& chart);

/// The interval of a value; the value itself where there is none.
Interval whisker_of(const Estimate& figure);

/// Where an axis from 0 ends. The whiskers of a few runs can be a thousand times as long as what
/// they belong to, of which nothing would be seen beside them: they are cut at twice the largest
/// value.
struct AxisEnd {
  double value = 0;
  bool cuts = false;  // some whisker
};
/// `also`: a value that the axis has, too.
AxisEnd axis_end(const std::vector<Estimate>& figures, double also = 0);

/// The lines with which each script begins: an image of this height, 480 wide.
std::string chart_head(int height);
/// The same where there are whiskers, which end at drawn(x): with a note above where they are cut.
std::string chart_head(int height, const AxisEnd& end);

/// Keys above the chart: on a line, and with a line for each of its entries.
inline constexpr const char* key_line =
    "set key on above right horizontal Left reverse samplen 1.5\n";
inline constexpr const char* key_above =
    "set key on above vertical maxcols 1 Left reverse samplen 1.5\n";
inline constexpr int key_line_height = 18;

/// A vertical axis with a label for each of `rows`, the first on top, at 0, 1, ...; on two lines
/// where it is long.
std::string row_axis(const std::vector<std::string>& rows);
/// Data of a chart, with that line at the top; numbers have 10 significant digits.
TextStream csv_with(const char* header);
/// Height that gives each row its place.
int height_of_rows(size_t rows);

/// Text from a report for a gnuplot script or a CSV cell, in quotes: cut to 48 characters, and what
/// has a meaning to gnuplot, which runs what stands between backquotes, becomes '_'.
std::string quoted_label(const std::string& text);

/// Colours that show on white and on black, told apart by most colour-blind eyes.
std::string colour(size_t index);
/// How areas of this kind are filled: measured solid, imported and emulated hatched each in its
/// way.
std::string fill(Kind kind, const std::string& colour);
/// Areas that are only outlined.
std::string outline(const std::string& colour);
/// How a point of this kind is drawn: measured filled, emulated open, imported a square.
std::string point(Kind kind, const std::string& colour);

/// An element of a plot: the whiskers of these data at this position, in a colour.
std::string whiskers(const std::string& data, const std::string& position,
                     const std::string& colour);

/// How many ticks stand beside each other without touching, where labels are as long as that of
/// this value.
int most_ticks(double largest);

/// 1, 2, 2.5 or 5 times a power of ten, so that no more than `most_ticks` such steps lie from 0 to
/// `length`, which is above 0.
double tick_step(double length, int most_ticks);

/// The settings of an axis, 'x' or 'y': its range, the distance of its ticks and what it shows.
std::string axis(char name, double begin, double end, double tick, const std::string& title);

/// " n = 5.", or where they differ " n: 1x1 5, 1x2 4.", by the first column of a table and this
/// one; other counts than n come with its title: " n = 60 steps.".
std::string counts_text(const TextTable& table, const std::string& column = "n");

/// " 3 more are not shown.", or nothing.
std::string left_out_text(size_t left_out);

/// The number as gnuplot reads it: 10 significant digits.
inline std::string plot_number(double value) { return shortest(value, 10); }

struct Bar {
  std::string label;
  size_t row = 0;
  size_t side = 0;
  Kind kind = Kind::measured;
  Estimate figure{};
  std::vector<double> circles{};
};

struct Bars {
  std::vector<std::string> rows{};
  std::vector<std::string> sides{};
  std::string axis{};            // title of the values
  std::optional<double> line{};  // a value to be marked
  std::vector<Bar> bars{};
};

/// The chart of these bars; without one it is missing, and why.
Chart bar_chart(Chart chart, const Bars& bars, const std::string& missing);

}  // namespace nearmetal
