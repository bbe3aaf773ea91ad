#include <algorithm>
#include <utility>

#include "reports/compare/compare.h"
#include "reports/compare/work_text.h"
#include "reports/formats/charts/charts.h"
#include "reports/formats/comparison_text.h"
#include "reports/formats/html.h"
#include "reports/formats/report_text.h"
#include "reports/sharing/fraction_tables.h"
#include "reports/sharing/fractions.h"
#include "reports/text/text.h"

namespace nearmetal {
namespace {

using Facts = std::vector<std::pair<std::string, std::vector<std::string>>>;

// Distinct values of each field of the comparable key, in its order.
TextTable table_of_keys(const RunSet& set) {
  Facts facts;
  for (const RunArm& arm : set.arms) {
    for (const SetRun& run : arm.runs) {
      for (const KeyField& field : run.key) {
        auto known = std::ranges::find(facts, field.name, &Facts::value_type::first);
        if (known == facts.end()) known = facts.insert(known, {field.name, {}});
        std::vector<std::string>& values = known->second;
        if (std::ranges::find(values, field.value) == values.end()) {
          values.push_back(field.value);
        }
      }
    }
  }
  TextTable table{.columns = {{"what must agree"}, {"value"}}, .rows = {}};
  for (const auto& [name, values] : facts) table.rows.push_back({name, joined(values)});
  return table;
}

TextTable table_of_environments(const RunSet& set) {
  TextTable table{.columns = {{"fact"}, {"value"}}, .rows = {}};
  for (const auto& [name, value] : joined_facts(set.environments)) {
    table.rows.push_back({name, shortened(value)});
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

void add_details(Page& page, const RunSet& set, const std::string& side) {
  const std::string suffix = side.empty() ? "" : " (" + side + ")";
  page.details.push_back({"The work" + suffix, table_of_keys(set)});
  page.details.push_back({"The machines" + suffix, table_of_environments(set)});
}

}  // namespace

Page report_page(const RunSet& set) {
  Page page;
  const std::string task = task_of(set);
  page.title = "nearmetal: " + (task.empty() ? "training" : task) + " throughput";
  page.work = work_line(set);
  if (shares_a_gpu(set)) page.tables = fraction_tables(set);
  page.remarks = run_warnings(set);
  page.charts = charts_of(set);
  page.details = {{"All figures", report_table(set)}};
  add_details(page, set, "");
  return page;
}

Page comparison_page(const RunSet& base, const RunSet& next, const Comparison& comparison,
                     const std::string& answer) {
  const ComparisonText text = text_of(comparison);
  Page page;
  page.title = comparison.options.vm_form ? "nearmetal: a VM against bare metal"
                                          : "nearmetal: new runs against base";
  page.answer = answer;
  if (!text.key_differences.rows.empty()) {
    page.tables.push_back({key_differences_title, text.key_differences});
  }
  page.tables.push_back({"Comparison: " + text.rule, with_last_column_second(text.rows)});
  page.remarks = text.remarks;
  for (const ExplanationText& explanation : text.explanations) {
    page.tables.push_back({explanation.title, explanation.layers});
    page.remarks.insert(page.remarks.end(), explanation.remarks.begin(), explanation.remarks.end());
  }
  page.charts = charts_of(base, next, comparison);
  if (!text.environments.rows.empty()) {
    page.tables.push_back({"Where the environments differ", text.environments});
  }
  add_details(page, base, base_title(comparison.options));
  add_details(page, next, new_title(comparison.options));
  return page;
}

}  // namespace nearmetal
