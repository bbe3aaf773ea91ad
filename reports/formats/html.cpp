#include "reports/formats/html.h"

#include <algorithm>
#include <map>
#include <utility>

#include "reports/compare/compare.h"
#include "reports/compare/work_text.h"
#include "reports/formats/charts/charts.h"
#include "reports/formats/comparison_text.h"
#include "reports/formats/headline.h"
#include "reports/formats/nic_text.h"
#include "reports/formats/pipeline_text.h"
#include "reports/formats/report_text.h"
#include "reports/formats/scaling_text.h"
#include "reports/sharing/fractions.h"
#include "reports/text/text.h"

namespace nearmetal {
namespace {

// Colours of text and lines follow the reader's choice of light or dark; those of data suit both.
constexpr const char* style = R"(<style>
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 72rem; padding: 1rem;
  background: Canvas; color: CanvasText; }
h1 { font-size: 1.5rem; line-height: 1.25; }
h2 { font-size: 1.15rem; margin: 2rem 0 .5rem; }
.answer { border-left: .3rem solid #888; padding: .25rem .75rem; font-weight: bold; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; margin: .5rem 0; font-size: .9rem; }
caption { text-align: left; font-weight: bold; padding: .25rem 0; }
th, td { border-bottom: 1px solid #8886; max-width: 30rem; min-width: 5rem; overflow-wrap: break-word;
  padding: .25rem .75rem .25rem 0; text-align: left; vertical-align: top; }
thead th { border-bottom-width: 2px; }
tbody th { font-weight: normal; }
th:nth-child(2), td:nth-child(2) { min-width: 7rem; }
.number.number { min-width: 0; text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.charts { align-items: start; display: grid; gap: 0 2rem;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 26rem), 1fr)); }
figure { margin: 0; min-width: 0; }
figure svg { display: block; height: auto; max-width: 48rem; width: 100%; }
figcaption, summary, .legend, .missing { font-size: .9rem; max-width: 56rem; }
summary { cursor: pointer; }
li { overflow-wrap: anywhere; }
</style>
)";

void print_table(std::ostream& out, const TitledTable& titled) {
  const TextTable& table = titled.table;
  const auto style = [&](size_t column) {
    return table.columns[column].right_aligned ? " class=\"number\"" : "";
  };
  out << "<div class=\"wide\" tabindex=\"0\"><table>\n<caption>" << html_escaped(titled.title)
      << "</caption>\n<thead><tr>";
  for (size_t column = 0; column < table.columns.size(); ++column) {
    out << "<th scope=\"col\"" << style(column) << '>' << html_escaped(table.columns[column].title)
        << "</th>";
  }
  out << "</tr></thead>\n<tbody>\n";
  for (const auto& row : table.rows) {
    out << "<tr><th scope=\"row\">" << html_escaped(row.front()) << "</th>";
    for (size_t column = 1; column < row.size(); ++column) {
      out << "<td" << style(column) << '>' << html_escaped(row[column]) << "</td>";
    }
    out << "</tr>\n";
  }
  out << "</tbody></table></div>\n";
  if (!titled.legend.empty()) {
    out << "<p class=\"legend\">" << html_escaped(titled.legend) << "</p>\n";
  }
}

// In HTML the element alone, without XML declaration and document type; black becomes the colour of
// the text around, and names are those of this chart alone.
std::string embedded(const std::string& svg, size_t number) {
  const size_t start = svg.find("<svg");
  if (start == svg.npos) return "";
  const std::string prefix = "c" + std::to_string(number);
  std::string element = svg.substr(start);
  for (const auto& [what, with] :
       std::vector<std::pair<std::string, std::string>>{{"'black'", "'currentColor'"},
                                                        {"\"black\"", "\"currentColor\""},
                                                        {"rgb(  0,   0,   0)", "currentColor"},
                                                        {"id='", "id='" + prefix},
                                                        {"id=\"", "id=\"" + prefix},
                                                        {"'#gp", "'#" + prefix + "gp"},
                                                        {"url(#", "url(#" + prefix}}) {
    element = replaced(element, what, with);
  }
  return element;
}

void print_chart(std::ostream& out, const Page& page, size_t number) {
  const Chart& chart = page.charts[number];
  const bool drawn = !page.images.empty();
  if (!chart.missing.empty() || (chart.table.rows.empty() && !drawn)) return;
  out << "<figure>\n<h2>" << html_escaped(chart.title) << "</h2>\n";
  if (drawn) {
    out << "<div role=\"img\" aria-label=\"" << html_escaped("Chart: " + chart.title) << "\">\n"
        << embedded(page.images[number], number) << "</div>\n";
  }
  out << "<figcaption>" << html_escaped(chart.caption) << "</figcaption>\n";
  if (!chart.table.rows.empty()) {
    out << "<details" << (drawn ? "" : " open") << "><summary>As a table</summary>\n";
    print_table(out, {chart.title, chart.table});
    out << "</details>\n";
  }
  out << "</figure>\n";
}

void print_charts(std::ostream& out, const Page& page, size_t first, size_t end) {
  out << "<div class=\"charts\">\n";
  for (size_t i = first; i < end; ++i) print_chart(out, page, i);
  out << "</div>\n";
}

void print_list(std::ostream& out, const char* title, const std::vector<std::string>& lines) {
  if (lines.empty()) return;
  out << "<h2>" << title << "</h2>\n<ul>\n";
  for (const std::string& line : lines) out << "<li>" << html_escaped(line) << "</li>\n";
  out << "</ul>\n";
}

std::vector<std::string> charts_not_shown(const Page& page) {
  std::vector<std::string> lines;
  for (const Chart& chart : page.charts) {
    if (!chart.missing.empty())
      lines.push_back(chart.title + (chart.title.ends_with('?') ? " " : ": ") + chart.missing);
  }
  return lines;
}

void print_answer(std::ostream& out, const Page& page) {
  for (const std::string& line : page.work) out << "<p>" << html_escaped(line) << "</p>\n";
  for (const std::string& line : page.headlines) {
    out << "<p class=\"answer\">" << html_escaped(line) << "</p>\n";
  }
  if (!page.verdict.empty()) out << "<p>" << html_escaped(page.verdict) << "</p>\n";
}

using Facts = std::vector<std::pair<std::string, std::string>>;

// Distinct values of each field of the comparable key, in its order.
Facts facts_of_keys(const RunSet& set) {
  std::vector<std::pair<std::string, std::vector<std::string>>> facts;
  for (const RunArm& arm : set.arms) {
    for (const SetRun& run : arm.runs) {
      for (const KeyField& field : run.key) {
        auto known = std::ranges::find(facts, field.name, &decltype(facts)::value_type::first);
        if (known == facts.end()) known = facts.insert(known, {field.name, {}});
        std::vector<std::string>& values = known->second;
        if (std::ranges::find(values, field.value) == values.end()) {
          values.push_back(field.value);
        }
      }
    }
  }
  Facts texts;
  for (const auto& [name, values] : facts) texts.emplace_back(name, joined(values));
  return texts;
}

Facts facts_of_machines(const RunSet& set) {
  Facts facts = joined_facts(set.environments);
  for (auto& [name, values] : facts) values = shortened(readable_fact(name, values));
  return facts;
}

using Sides = std::vector<std::pair<std::string, const RunSet*>>;  // of name and set

// A column for each side.
TextTable side_by_side(const char* title, const Sides& sides, Facts (*facts_of)(const RunSet&)) {
  TextTable table{.columns = {{title}}, .rows = {}};
  std::map<std::string, size_t> rows;
  for (size_t side = 0; side < sides.size(); ++side) {
    table.columns.push_back({sides.size() == 1 ? "value" : sides[side].first});
    for (const auto& [name, value] : facts_of(*sides[side].second)) {
      const auto [row, is_new] = rows.emplace(name, table.rows.size());
      if (is_new) table.rows.emplace_back(sides.size() + 1, "-").front() = name;
      table.rows[row->second].at(side + 1) = value;
    }
  }
  return table;
}

// The verdict beside the row: a phone shows no more of it.
TextTable with_last_column_second(TextTable table) {
  const auto move = [](auto& cells) {
    std::rotate(cells.begin() + 1, cells.end() - 1, cells.end());
  };
  move(table.columns);
  for (auto& row : table.rows) move(row);
  return table;
}

void add_details(Page& page, const Sides& sides) {
  page.details.push_back({"The work", side_by_side("what must agree", sides, facts_of_keys)});
  page.details.push_back({"The machines", side_by_side("fact", sides, facts_of_machines)});
}

}  // namespace

std::string html_escaped(const std::string& text) {
  std::string escaped = printable(text);
  for (const auto& [c, entity] : {std::pair("&", "&amp;"), std::pair("<", "&lt;"),
                                  std::pair(">", "&gt;"), std::pair("\"", "&quot;")}) {
    escaped = replaced(escaped, c, entity);
  }
  return escaped;
}

void print_html(std::ostream& out, const Page& page) {
  out << "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
         "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
         "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
         "style-src 'unsafe-inline'\">\n<title>"
      << html_escaped(page.title) << "</title>\n"
      << style << "</head>\n<body>\n<h1>" << html_escaped(page.title) << "</h1>\n";
  print_answer(out, page);
  print_charts(out, page, 0, page.leading_charts);
  for (const TitledTable& table : page.tables) print_table(out, table);
  print_charts(out, page, page.leading_charts, page.charts.size());
  print_list(out, "Remarks", page.remarks);
  print_list(out, "Charts that are not shown", charts_not_shown(page));
  if (!page.details.empty()) out << "<h2>Details</h2>\n";
  for (const TitledTable& table : page.details) {
    out << "<details><summary>" << html_escaped(table.title) << "</summary>\n";
    print_table(out, table);
    out << "</details>\n";
  }
  out << "</body>\n</html>\n";
}

Page report_page(const GroupedRuns& runs) {
  const RunSet& set = runs.all;
  Sides sides;
  for (const NamedRuns& group : runs.groups) sides.emplace_back(group.name, &group.set);
  if (sides.empty()) sides = {{"", &set}};
  Page page;
  const std::string task = task_of(set);
  page.title = "nearmetal: " + (task.empty() ? "training" : task) + " throughput";
  page.work = work_lines(sides);
  page.headlines = headlines(set);
  if (shares_a_device(set)) page.tables = fraction_tables(set);
  for (TitledTable& table : tables_beside_figures(set)) page.tables.push_back(std::move(table));
  if (shows_speedup(set)) page.tables.push_back({"Scaling", scaling_table(set)});
  page.remarks = run_warnings(set);
  page.charts = charts_of(runs);
  page.details = {{"All figures", report_table(set)}};
  add_details(page, sides);
  for (TitledTable& table : nic_tables(set.environments)) page.details.push_back(std::move(table));
  return page;
}

Page comparison_page(const RunSet& base, const RunSet& next, const Comparison& comparison,
                     const std::string& verdict) {
  const ComparisonText text = text_of(comparison);
  Page page;
  const CompareOptions& options = comparison.options;
  page.title = options.form == ComparisonForm::sets
                   ? std::string("nearmetal: new runs against base")
                   : std::string("nearmetal: a ") + new_title(options) + " against bare metal";
  page.work = text.work;
  page.headlines = text.headlines;
  page.verdict = verdict;
  page.leading_charts = 2;  // those of the difference and of the throughput
  if (!text.key_differences.rows.empty()) {
    page.tables.push_back({key_differences_title, text.key_differences});
  }
  page.tables.push_back({"Comparison: " + text.rule, with_last_column_second(text.rows)});
  page.remarks = text.remarks;
  for (const TitledTable& explanation : text.explanations) {
    page.tables.push_back(explanation);
    page.remarks.insert(page.remarks.end(), explanation.remarks.begin(), explanation.remarks.end());
  }
  page.charts = charts_of(base, next, comparison);
  if (!text.environments.rows.empty()) {
    page.tables.push_back({"Where the environments differ", text.environments});
  }
  add_details(page, {{base_title(options), &base}, {new_title(options), &next}});
  return page;
}

}  // namespace nearmetal
