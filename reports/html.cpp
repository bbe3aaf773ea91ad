#include "reports/html.h"

#include "reports/report_text.h"

namespace nearmetal {
namespace {

constexpr const char* head = R"(<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>nearmetal</title>
<style>
:root { color-scheme: light dark; }
body { font: 16px/1.5 sans-serif; margin: 0 auto; max-width: 60rem; padding: 1rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; margin: 1rem 0; }
caption { text-align: left; font-weight: bold; }
th, td { border-bottom: 1px solid #8888; padding: .25rem .75rem; text-align: left; }
.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
figure { margin: 1rem 0; }
figure div { overflow-x: auto; }
figure svg { background: #fff; border-radius: .25rem; height: auto; min-width: 32rem; width: 100%; }
</style>
</head>
<body>
<h1>nearmetal</h1>
)";

void print_table(std::ostream& out, const TextTable& table, const std::string& caption) {
  const auto style = [&](size_t column) {
    return table.columns[column].right_aligned ? " class=\"number\"" : "";
  };
  out << "<div class=\"wide\" tabindex=\"0\"><table>\n<caption>" << html_escaped(caption)
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
}

// In HTML the element alone: no XML declaration and no document type.
std::string element_of(const std::string& svg) {
  const size_t start = svg.find("<svg");
  return start == svg.npos ? "" : svg.substr(start);
}

}  // namespace

std::string html_escaped(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    switch (c) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      default:
        escaped += static_cast<unsigned char>(c) < ' ' ? '?' : c;
    }
  }
  return escaped;
}

void print_html(std::ostream& out, const RunSet& set, const std::vector<Figure>& figures) {
  out << head;
  for (const Figure& figure : figures) {
    out << "<figure role=\"img\" aria-label=\"" << html_escaped(figure.caption) << "\">\n<div>"
        << element_of(figure.svg) << "</div><figcaption>" << html_escaped(figure.caption)
        << "</figcaption>\n</figure>\n";
  }
  print_table(out, report_table(set), "Runs by arm, 95 % intervals of the mean");
  const std::vector<std::string> warnings = run_warnings(set);
  if (!warnings.empty()) out << "<h2>Warnings</h2>\n<ul>\n";
  for (const std::string& line : warnings) out << "<li>" << html_escaped(line) << "</li>\n";
  if (!warnings.empty()) out << "</ul>\n";
  out << "</body>\n</html>\n";
}

}  // namespace nearmetal
