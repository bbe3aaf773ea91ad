#include <algorithm>
#include <sstream>

#include "reports/formats/charts/charts.h"
#include "reports/text/text.h"

namespace nearmetal {
namespace {

struct Part {
  std::string name;
  double seconds = 0;
};

// The parts by phase; what a step takes beyond the kernels is a part, too.
std::vector<Part> parts_of(const StepProfile& profile) {
  std::vector<Part> parts;
  for (const char* name : names_of(Phase{})) parts.push_back({name});
  for (const ProfileEntry& entry : profile.entries) {
    parts[static_cast<size_t>(entry.phase)].seconds += entry.seconds;
  }
  parts.push_back({"not in kernels", std::max(0.0, profile.step_seconds - profile.sum_seconds)});
  return parts;
}

// `parts`: their names, and the longest of any row.
std::string script_of(const std::vector<std::string>& rows, const std::vector<Part>& parts) {
  double end = 0;
  for (const Part& part : parts) end += milliseconds * part.seconds;
  std::string script = chart_head(height_of_rows(rows.size()) + 30) + row_axis(rows) +
                       "set xrange [0:*]\nset xtics " +
                       plain_number(tick_step(end, most_ticks(end))) +
                       "\nset xlabel 'ms'\nset grid xtics ls 1\n"
                       "set key on above right horizontal Left reverse samplen 1.5\nplot ";
  for (size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].seconds == 0) continue;
    const std::string look = parts[i].name == "not in kernels" ? fill(Kind::predicted, colour(6))
                                                               : fill(Kind::measured, colour(i));
    script += "$data using (strcol('part') eq '" + parts[i].name +
              "' && column('end') > column('start') ? (column('start') + column('end')) / 2 : NaN)"
              ":'position':((column('end') - column('start')) / 2):(0.3) with boxxy " +
              look + " title '" + parts[i].name + "', \\\n  ";
  }
  return script +
         "$data using (strcol('part') eq 'step' ? column('end') : NaN):(column('position') - 0.42)"
         ":(0):(0.84) with vectors nohead lw 2.5 lc rgb 'black' title 'step'\n";
}

}  // namespace

Chart profile_chart(const ShownArms& shown) {
  constexpr size_t most_profiles = 12;
  Chart chart{.name = "profile", .title = "Where the step goes"};
  chart.table.columns = {{"arm"}, {"part"}, {"ms", true}, {"% of the step", true}};
  std::ostringstream csv = csv_with("position,arm,part,start,end");
  std::vector<std::string> rows;
  std::vector<Part> longest;
  for (const ShownArm& arm : shown.arms) {
    const Run* run = typical_run(*arm.arm, [](const Run& any) { return any.profile.has_value(); });
    if (run == nullptr || rows.size() == most_profiles) continue;
    const std::string label = quoted_label(arm.label());
    const auto add = [&](const std::string& part, double start, double end) {
      csv << rows.size() << ',' << label << ',' << part << ',' << milliseconds * start << ','
          << milliseconds * end << '\n';
      chart.table.rows.push_back(
          {arm.label(), part, significant(milliseconds * (end - start)),
           significant(100 * (end - start) / run->profile->step_seconds, 3)});
    };
    const std::vector<Part> parts = parts_of(*run->profile);
    longest.resize(parts.size());
    double start = 0;
    for (size_t i = 0; i < parts.size(); ++i) {
      longest[i] = {parts[i].name, std::max(longest[i].seconds, parts[i].seconds)};
      if (parts[i].seconds > 0) add(parts[i].name, start, start + parts[i].seconds);
      start += parts[i].seconds;
    }
    add("step", 0, run->profile->step_seconds);
    rows.push_back(arm.label());
  }
  if (rows.empty()) return missing_chart(chart, "no run was taken with --profile");
  chart.caption =
      "Kernels or primitives, each timed alone, by phase; the line: the step as it ran, median of "
      "the "
      "timed window. One run of each arm. Where kernels reach beyond it, they overlap in the step "
      "or are slower alone.";
  chart.csv = csv.str();
  chart.script = script_of(rows, longest);
  return chart;
}

}  // namespace nearmetal
