#include "reports/formats/page.h"

#include <algorithm>
#include <utility>

#include "base/text.h"

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

void print_chart(std::ostream& out, const Chart& chart, bool drawn) {
  if (!chart.missing.empty() || (chart.table.rows.empty() && !drawn)) return;
  out << "<figure>\n<h2>" << html_escaped(chart.title) << "</h2>\n";
  if (drawn) {
    out << "<div role=\"img\" aria-label=\"" << html_escaped("Chart: " + chart.title) << "\">\n"
        << svg_element(chart) << "</div>\n";
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
  for (size_t i = first; i < end; ++i) print_chart(out, page.charts[i], page.draws_charts);
  out << "</div>\n";
}

void print_list(std::ostream& out, const char* title, const std::vector<std::string>& lines) {
  if (lines.empty()) return;
  out << "<h2>" << title << "</h2>\n<ul>\n";
  for (const std::string& line : lines) out << "<li>" << html_escaped(line) << "</li>\n";
  out << "</ul>\n";
}

void print_tables(std::ostream& out, const Page& page, bool folded) {
  for (const TitledTable& table : page.tables) {
    if (table.folded != folded) continue;
    if (folded) out << "<details><summary>" << html_escaped(table.title) << "</summary>\n";
    print_table(out, table);
    if (folded) out << "</details>\n";
  }
}

}  // namespace

void add_table(std::vector<TitledTable>& tables, TitledTable table) {
  if (!table.table.rows.empty()) tables.push_back(std::move(table));
}

void print_text(std::ostream& out, const Page& page, bool colour) {
  for (const std::string& line : page.work) print_wrapped(out, line);
  for (const std::string& line : page.headlines) {
    if (colour) out << "\033[1m";
    print_wrapped(out, line);
    if (colour) out << "\033[0m";
  }
  bool begins = page.work.empty() && page.headlines.empty();
  for (const TitledTable& table : page.tables) {
    if (!std::exchange(begins, false)) out << '\n';
    print_aligned(out, table, colour);
  }
  if (!begins && !page.remarks.empty()) out << '\n';
  for (const std::string& line : page.remarks) print_wrapped(out, line);
}

void print_markdown(std::ostream& out, const Page& page) {
  for (const std::string& line : page.work) out << markdown_escaped(line) << "\n\n";
  for (const std::string& line : page.headlines) out << "**" << markdown_escaped(line) << "**\n\n";
  for (const TitledTable& table : page.tables) print_markdown(out, table);
  for (const std::string& line : page.remarks) out << "- " << markdown_escaped(line) << '\n';
}

void print_html(std::ostream& out, const Page& page) {
  out << "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
         "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
         "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
         "style-src 'unsafe-inline'\">\n<title>"
      << html_escaped(page.title) << "</title>\n"
      << style << "</head>\n<body>\n<h1>" << html_escaped(page.title) << "</h1>\n";
  for (const std::string& line : page.work) out << "<p>" << html_escaped(line) << "</p>\n";
  for (const std::string& line : page.headlines) {
    out << "<p class=\"answer\">" << html_escaped(line) << "</p>\n";
  }
  if (!page.verdict.empty()) out << "<p>" << html_escaped(page.verdict) << "</p>\n";
  print_charts(out, page, 0, page.leading_charts);
  print_tables(out, page, false);
  print_charts(out, page, page.leading_charts, page.charts.size());
  std::vector<std::string> remarks = page.remarks, not_shown;
  for (const TitledTable& table : page.tables) append(remarks, table.remarks);
  for (const Chart& chart : page.charts) {
    if (chart.missing.empty()) continue;
    not_shown.push_back(chart.title + (chart.title.ends_with('?') ? " " : ": ") + chart.missing);
  }
  print_list(out, "Remarks", remarks);
  print_list(out, "Charts that are not shown", not_shown);
  if (std::ranges::any_of(page.tables, &TitledTable::folded)) out << "<h2>Details</h2>\n";
  print_tables(out, page, true);
  out << "</body>\n</html>\n";
}

}  // namespace nearmetal
