// One chart as plain data: what it draws, as a table for those who cannot see it, as CSV
// and as SVG.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "base/text.h"
#include "base/text_table.h"
#include "reports/document/types.h"

namespace nearmetal {

constexpr double milliseconds = 1e3;  // of a second

/// Series beyond so many would share colours.
inline constexpr size_t colour_count = 8;

struct Tick {
  double value = 0;
  std::string label{};
};

struct Axis {
  std::string title{};
  double begin = 0;  // on the left or at the bottom; may be the larger one
  double end = 1;
  bool log2 = false;
  std::vector<Tick> ticks{};  // none: round numbers, as many as there is room for
};

/// How a series is drawn; labels stand to the right of their position.
enum class Look { line, points, joined, bars, boxes, labels };
constexpr auto names_of(Look) {
  return std::array{"line", "point", "point", "bar", "box", "label"};
}

struct Mark {
  double x = 0;
  double y = 0;
  Maybe<Interval> interval{};  // of the value: a whisker
  std::string text{};          // of a label, or in a box where it has room
};

struct Series {
  std::string title{};  // in the legend; empty: not there
  Look look = Look::points;
  std::optional<size_t> colour{};  // by number; none: that of text
  Kind kind = Kind::measured;
  bool dashed = false;  // of lines
  bool rings = false;   // points that are not filled, whatever their kind
  double radius = 4;    // of points
  std::vector<Mark> marks{};
};

/// One pair of axes. With `rows` values lie along x, and the ticks of y are its rows, at 0, 1, ...
/// from the top; there alone are bars, which reach from 0 to their x, and boxes, over their
/// interval.
struct Plot {
  std::string title{};
  Axis x{}, y{};
  bool rows = false;
  double half_height = 0.38;       // of bars and boxes, in rows
  int height = 320;                // between the axes, in pixels where the chart is 480 wide
  std::optional<double> rule{};    // a dashed line at this value
  std::optional<Interval> band{};  // grey between these values
  std::vector<Series> series{};
};

struct Chart {
  std::string name;  // of files: "throughput"
  std::string title;
  std::string caption{};      // what is shown, with n and the interval
  std::string missing{};      // why there is nothing to show; then all that follows is empty
  std::vector<Plot> plots{};  // one below the other
  TextTable table{};
};

/// A chart that cannot be drawn, and why.
Chart missing_chart(Chart chart, const std::string& why);

/// A line for each mark but labels: series, kind, look, x, y, the interval; numbers of 10 digits.
std::string csv_of(const Chart& chart);

/// Within a page: text and lines have the colour of the text around, and the title stands there.
/// The chart is not a missing one.
std::string svg_element(const Chart& chart);

/// A file: with title and caption, dark on white.
std::string svg_file(const Chart& chart);

/// Where an axis from 0 ends that shows these figures and `also`. The whiskers of a few runs can be
/// a thousand times as long as what they belong to, of which nothing would be seen beside them: the
/// axis ends at twice the largest value, and cuts them.
double axis_end(const std::vector<Estimate>& figures, double also = 0);

/// Whole numbers from `first` to `last`, few enough for an axis.
std::vector<Tick> whole_ticks(double first, double last);

/// The vertical axis of rows, the first on top.
Axis row_axis(const std::vector<std::string>& rows);
/// Height that gives each row its place.
int height_of_rows(size_t rows);

/// 1, 2, 2.5 or 5 times a power of ten, so that no more than `most_ticks` such steps lie from 0 to
/// `length`, which is above 0.
double tick_step(double length, int most_ticks);

/// " n = 5.", or where they differ " n: 1x1 5, 1x2 4.", by the first column of a table and this
/// one; other counts than n come with its title: " n = 60 steps.".
std::string counts_text(const TextTable& table, const std::string& column = "n");

/// " 3 more are not shown.", or nothing.
std::string left_out_text(size_t left_out);

}  // namespace nearmetal
