#include "reports/formats/charts/chart.h"

#include <algorithm>
#include <cmath>
#include <set>

namespace nearmetal {
namespace {

constexpr double chart_width = 480;
constexpr double font_size = 13;
constexpr double small_font_size = 11;
constexpr double line_height = 17;
constexpr double edge = 6;          // left free around all
constexpr double widest_row = 150;  // of the names of rows

// Colours that show on white and on black, told apart by most colour-blind eyes.
std::string colour_of(const std::optional<size_t>& index) {
  constexpr std::array<const char*, colour_count> colours = {
      "#2f7fc1", "#d9731a", "#2a9d6f", "#b05cc6", "#c9504b", "#8a8f00", "#7f7f7f", "#c26a93"};
  return index ? colours[*index % colours.size()] : "currentColor";
}

// Mean width of a character in ems, no less than that of any common sans-serif font.
constexpr double column = 0.64;

double pixels_of(const std::string& text, double size) {
  return column * size * static_cast<double>(width_of(text));
}

// On lines no wider than this; the last of `most_lines` ends with dots where more would follow.
std::vector<std::string> wrapped(const std::string& text, double width, double size,
                                 size_t most_lines = 100) {
  const auto columns = static_cast<size_t>(width / (column * size));
  std::vector<std::string> lines = wrap_cell(printable(text), columns);
  if (lines.size() > most_lines) {
    lines.resize(most_lines);
    lines.back() = cut(lines.back(), columns - 2) + "..";
  }
  return lines;
}

std::string number(double value) { return fixed(value, 1); }

// An attribute with a number of pixels: ` x="3.5"`.
std::string pixels(const char* name, double value) {
  return std::string(" ") + name + "=\"" + number(value) + '"';
}

std::string text_at(double x, double y, const std::string& text, const char* anchor = "middle",
                    double size = font_size, const std::string& more = "") {
  return "<text" + pixels("x", x) + pixels("y", y) +
         (size == font_size ? "" : pixels("font-size", size)) + " text-anchor=\"" + anchor + '"' +
         more + '>' + html_escaped(text) + "</text>\n";
}

std::string line_between(double x1, double y1, double x2, double y2, const std::string& more) {
  return "<line" + pixels("x1", x1) + pixels("y1", y1) + pixels("x2", x2) + pixels("y2", y2) +
         more + "/>\n";
}

std::string stroke(const std::string& colour, double width, bool dashed = false) {
  return " stroke=\"" + colour + '"' + pixels("stroke-width", width) + " fill=\"none\"" +
         (dashed ? " stroke-dasharray=\"6 4\"" : "");
}

std::string rectangle(double x, double y, double width, double height, const std::string& more) {
  return "<rect" + pixels("x", x) + pixels("y", y) + pixels("width", width) +
         pixels("height", height) + more + "/>\n";
}

// Measured is full, emulated only outlined, imported pale and predicted pale with dashes.
std::string area_look(Kind kind, const std::string& colour) {
  constexpr std::array opacities = {"0.7", "0", "0.2", "0.2"};
  const bool dashed = kind == Kind::emulated || kind == Kind::predicted;
  return " fill=\"" + colour + "\" fill-opacity=\"" + opacities.at(static_cast<size_t>(kind)) +
         "\" stroke=\"" + colour + '"' + (dashed ? " stroke-dasharray=\"4 3\"" : "");
}

// Measured is a disc, emulated a ring, predicted a ring of dashes, imported a square.
std::string point_at(double x, double y, const Series& series) {
  const std::string colour = colour_of(series.colour);
  const bool filled = series.kind == Kind::measured && !series.rings;
  const std::string look = " stroke=\"" + colour + "\" stroke-width=\"1.5\" fill=\"" +
                           (filled ? colour : "none") + '"' +
                           (series.kind == Kind::predicted ? " stroke-dasharray=\"2 2\"" : "");
  const double radius = series.radius;
  if (series.kind == Kind::imported) {
    return rectangle(x - radius, y - radius, 2 * radius, 2 * radius, look);
  }
  return "<circle" + pixels("cx", x) + pixels("cy", y) + pixels("r", radius) + look + "/>\n";
}

// From 0 at its begin to 1 at its end.
double share_of(const Axis& axis, double value) {
  if (axis.log2 && value <= 0) return 0;
  const auto scaled = [&](double v) { return axis.log2 ? std::log2(v) : v; };
  const double share =
      (scaled(value) - scaled(axis.begin)) / (scaled(axis.end) - scaled(axis.begin));
  return std::isfinite(share) ? share : 0;
}

// Whether labels of these ticks leave each other room on an axis of this length.
bool have_room(const Axis& axis, const std::vector<Tick>& ticks, double length, bool vertical) {
  for (size_t i = 1; i < ticks.size(); ++i) {
    const double distance =
        length * std::abs(share_of(axis, ticks[i].value) - share_of(axis, ticks[i - 1].value));
    const double needed =
        vertical
            ? line_height
            : (pixels_of(ticks[i].label, font_size) + pixels_of(ticks[i - 1].label, font_size)) / 2;
    if (distance < needed + (vertical ? 4 : 8)) return false;
  }
  return true;
}

std::vector<Tick> linear_ticks(const Axis& axis, int most) {
  const double least = std::min(axis.begin, axis.end), largest = std::max(axis.begin, axis.end);
  std::vector<Tick> ticks;
  if (!(largest > least) || !std::isfinite(largest - least)) return ticks;
  const double step = tick_step(largest - least, most);
  const double first = std::ceil(least / step - 1e-9);
  for (int i = 0; i <= most; ++i) {
    const double value = first + i == 0 ? 0 : (first + i) * step;  // not -0
    if (value <= largest + 1e-9 * step) ticks.push_back({value, shortest(value, 10)});
  }
  return ticks;
}

// Each of these factors times each power of ten within the axis.
std::vector<Tick> log_ticks(const Axis& axis, const std::vector<double>& factors) {
  std::vector<Tick> ticks;
  constexpr int most_decades = 20;
  double power = std::pow(10, std::floor(std::log10(axis.begin)));
  for (int decade = 0; decade < most_decades && power <= axis.end; ++decade, power *= 10) {
    for (const double factor : factors) {
      const double value = factor * power;
      if (value >= axis.begin && value <= axis.end) ticks.push_back({value, shortest(value, 10)});
    }
  }
  return ticks;
}

// The axis's own ticks, or if it has none round numbers, as many as have room.
std::vector<Tick> drawn_ticks(const Axis& axis, double length, bool vertical) {
  if (!axis.ticks.empty()) {
    std::vector<Tick> kept;
    for (const Tick& tick : axis.ticks) {
      if (kept.empty() || have_room(axis, {kept.back(), tick}, length, vertical)) {
        kept.push_back(tick);
      }
    }
    return kept;
  }
  const std::vector<double> factors[] = {
      {1, 1.5, 2, 3, 4, 5, 6, 7, 8, 9}, {1, 2, 3, 5, 7}, {1, 2, 5}, {1}};
  const int choices = axis.log2 ? static_cast<int>(std::ssize(factors)) : 8;
  for (int i = 0; i < choices; ++i) {
    const std::vector<Tick> ticks =
        axis.log2 ? log_ticks(axis, factors[i]) : linear_ticks(axis, choices - i);
    if (have_room(axis, ticks, length, vertical)) return ticks;
  }
  return {};
}

// Draws one plot below `top`.
class Drawing {
 public:
  Drawing(const Plot& plot, double top) : plot_(plot), top_(top) {
    add_title_and_legend();
    place_axes();
    add_grid();
    for (const Series& series : plot.series) add(series);
    if (cuts_)
      text_ += text_at(chart_width - edge, note_at_, "whiskers are cut: see the table", "end",
                       small_font_size);
  }

  const std::string& text() const { return text_; }
  /// Where the next plot begins.
  double end() const { return end_; }

 private:
  double x(double value) const {
    return left_ + width_ * std::clamp(share_of(plot_.x, value), 0.0, 1.0);
  }
  double y(double value) const {
    return top_ + plot_.height * (1 - std::clamp(share_of(plot_.y, value), 0.0, 1.0));
  }
  double right() const { return left_ + width_; }
  double bottom() const { return top_ + plot_.height; }

  bool is_cut(const Mark& mark) const {
    const Axis& axis = plot_.rows ? plot_.x : plot_.y;
    return mark.interval && mark.interval->upper > axis.end;
  }

  // Entries stand side by side as long as they fit on a line.
  void add_title_and_legend() {
    for (const std::string& line : wrapped(plot_.title, chart_width - 2 * edge, font_size)) {
      if (line.empty()) break;
      top_ += line_height;
      text_ += text_at(chart_width / 2, top_ - 4, line);
    }
    constexpr double swatch = 28, gap = 16;
    double at = edge;
    bool any = false;
    for (const Series& series : plot_.series) {
      if (series.title.empty()) continue;
      const double room = chart_width - 2 * edge - swatch;
      const std::vector<std::string> lines = wrapped(series.title, room, font_size);
      const double width = swatch + (lines.size() > 1 ? room : pixels_of(lines[0], font_size));
      if (!any || at + width > chart_width - edge) {
        top_ += line_height;
        at = edge;
      }
      any = true;
      text_ += swatch_at(series, at, top_ - 9);
      for (const std::string& line : lines) {
        if (&line != &lines.front()) top_ += line_height;
        text_ += text_at(at + swatch, top_ - 4, line, "start");
      }
      at = lines.size() > 1 ? chart_width : at + width + gap;
    }
    cuts_ = std::ranges::any_of(plot_.series, [&](const Series& series) {
      return series.look != Look::boxes &&
             std::ranges::any_of(series.marks, [&](const Mark& mark) { return is_cut(mark); });
    });
    if (cuts_) note_at_ = (top_ += line_height) - 4;
    top_ += 10;
  }

  static std::string swatch_at(const Series& series, double at, double y) {
    const std::string colour = colour_of(series.colour);
    constexpr double length = 22;
    if (series.look == Look::bars || series.look == Look::boxes) {
      return rectangle(at, y - 5, length, 10, area_look(series.kind, colour));
    }
    return (series.look == Look::points
                ? ""
                : line_between(at, y, at + length, y, stroke(colour, 2, series.dashed))) +
           (series.look == Look::line ? "" : point_at(at + length / 2, y, series));
  }

  void place_axes() {
    y_ticks_ = plot_.rows ? plot_.y.ticks : drawn_ticks(plot_.y, plot_.height, true);
    double widest = 0;
    for (const Tick& tick : y_ticks_) widest = std::max(widest, pixels_of(tick.label, font_size));
    left_ = edge + std::min(widest, widest_row) + 8 + (plot_.y.title.empty() ? 0 : line_height);
    width_ = chart_width - left_ - 2 * edge;
    x_ticks_ = drawn_ticks(plot_.x, width_, false);
    if (!x_ticks_.empty()) {  // the last label ends within the chart
      const Tick& last = x_ticks_.back();
      width_ -=
          std::max(0.0, x(last.value) + pixels_of(last.label, font_size) / 2 + edge - chart_width);
    }
    end_ = bottom() + 24 + (plot_.x.title.empty() ? 0 : line_height);
  }

  void add_grid() {
    const std::string grid = stroke("#888888", 0.5);
    if (plot_.band) {
      const double begin = x(plot_.band->lower), end = x(plot_.band->upper);
      text_ += rectangle(begin, top_, end - begin, plot_.height,
                         " fill=\"#888888\" fill-opacity=\"0.25\"");
    }
    for (const Tick& tick : x_ticks_) {
      text_ += line_between(x(tick.value), top_, x(tick.value), bottom(), grid) +
               text_at(x(tick.value), bottom() + line_height, tick.label);
    }
    for (const Tick& tick : y_ticks_) {
      const std::vector<std::string> lines =
          plot_.rows ? wrapped(tick.label, widest_row, font_size, 2) : std::vector{tick.label};
      double at = y(tick.value) + 4.5 - line_height / 2 * static_cast<double>(lines.size() - 1);
      for (const std::string& line : lines) {
        text_ += text_at(left_ - 6, at, line, "end");
        at += line_height;
      }
      if (!plot_.rows) text_ += line_between(left_, y(tick.value), right(), y(tick.value), grid);
    }
    text_ += line_between(left_, top_, left_, bottom(), stroke("currentColor", 1)) +
             line_between(left_, bottom(), right(), bottom(), stroke("currentColor", 1));
    if (!plot_.x.title.empty()) {
      text_ += text_at(left_ + width_ / 2, bottom() + 2 * line_height, plot_.x.title);
    }
    if (!plot_.y.title.empty()) {
      const double middle = top_ + plot_.height / 2.0;
      text_ +=
          text_at(edge + 8, middle, plot_.y.title, "middle", font_size,
                  " transform=\"rotate(-90 " + number(edge + 8) + ' ' + number(middle) + ")\"");
    }
    if (!plot_.rule) return;
    const std::string dashes = stroke("currentColor", 1.5, true);
    text_ += plot_.rows ? line_between(x(*plot_.rule), top_, x(*plot_.rule), bottom(), dashes)
                        : line_between(left_, y(*plot_.rule), right(), y(*plot_.rule), dashes);
  }

  // With a cap where it ends, none where it is cut.
  void add_whisker(const Mark& mark, const std::string& colour) {
    if (!mark.interval || mark.interval->upper <= mark.interval->lower) return;
    constexpr double cap = 4;
    const std::string look = stroke(colour, 1.5);
    const auto [lower, upper] = *mark.interval;
    const auto bar = [&](double value) {
      return plot_.rows ? line_between(x(value), y(mark.y) - cap, x(value), y(mark.y) + cap, look)
                        : line_between(x(mark.x) - cap, y(value), x(mark.x) + cap, y(value), look);
    };
    text_ += plot_.rows ? line_between(x(lower), y(mark.y), x(upper), y(mark.y), look)
                        : line_between(x(mark.x), y(lower), x(mark.x), y(upper), look);
    text_ += bar(lower);
    if (!is_cut(mark)) text_ += bar(upper);
  }

  void add_polyline(const Series& series) {
    std::string points;
    for (const Mark& mark : series.marks) {
      points += (points.empty() ? "" : " ") + number(x(mark.x)) + ',' + number(y(mark.y));
    }
    text_ +=
        "<polyline points=\"" + points + '"' +
        stroke(colour_of(series.colour), series.look == Look::joined ? 2 : 1.5, series.dashed) +
        "/>\n";
  }

  void add_box(const Series& series, const Mark& mark) {
    constexpr double least_width = 2.5;
    const bool is_bar = series.look == Look::bars;
    const double begin = x(is_bar ? 0 : mark.interval->lower);
    const double width = std::max(least_width, x(is_bar ? mark.x : mark.interval->upper) - begin);
    const double half_height =
        plot_.half_height * plot_.height / std::abs(plot_.y.end - plot_.y.begin);
    text_ += rectangle(begin, y(mark.y) - half_height, width, 2 * half_height,
                       area_look(series.kind, colour_of(series.colour)));
    if (!mark.text.empty() && pixels_of(mark.text, small_font_size) < width) {
      text_ += text_at(begin + width / 2, y(mark.y) + 4, mark.text, "middle", small_font_size);
    }
  }

  void add(const Series& series) {
    if (series.look == Look::line || series.look == Look::joined) add_polyline(series);
    for (const Mark& mark : series.marks) {
      if (series.look == Look::labels) {
        text_ += text_at(x(mark.x) + 7, y(mark.y) + 4, mark.text, "start", small_font_size);
      } else if (series.look == Look::bars || series.look == Look::boxes) {
        add_box(series, mark);
      }
      if (series.look == Look::bars) add_whisker(mark, "currentColor");
      if (series.look == Look::points || series.look == Look::joined) {
        add_whisker(mark, colour_of(series.colour));
        text_ += point_at(x(mark.x), y(mark.y), series);
      }
    }
  }

  const Plot& plot_;
  double top_ = 0;  // of what the axes enclose
  double left_ = 0, width_ = 0, end_ = 0;
  double note_at_ = 0;
  bool cuts_ = false;
  std::vector<Tick> x_ticks_, y_ticks_;
  std::string text_;
};

std::string svg_of(const Chart& chart, bool is_file) {
  std::string content;
  double top = 0;
  if (is_file) {
    for (const std::string& line : wrapped(chart.title, chart_width - 2 * edge, 16)) {
      content += text_at(edge, top += 22, line, "start", 16, " font-weight=\"bold\"");
    }
    top += edge;
  }
  for (const Plot& plot : chart.plots) {
    const Drawing drawing(plot, top);
    content += drawing.text();
    top = drawing.end();
  }
  if (is_file) {
    for (const std::string& line :
         wrapped(chart.caption, chart_width - 2 * edge, small_font_size)) {
      content += text_at(edge, top += 15, line, "start", small_font_size);
    }
  }
  const std::string height = number(top + edge);
  return "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 " + number(chart_width) + ' ' +
         height + "\" width=\"" + number(chart_width) + "\" height=\"" + height +
         "\" font-family=\"sans-serif\" font-size=\"" + number(font_size) +
         "\" fill=\"currentColor\"" + (is_file ? " color=\"#000000\"" : "") + ">\n" +
         (is_file ? "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n" : "") + content +
         "</svg>\n";
}

std::string csv_number(double value) { return shortest(value, 10); }

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

std::string svg_element(const Chart& chart) { return svg_of(chart, false); }

std::string svg_file(const Chart& chart) {
  return "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n" + svg_of(chart, true);
}

}  // namespace nearmetal
