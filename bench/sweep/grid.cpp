#include "bench/sweep/grid.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <stdexcept>

#include "bench/cli/parse_value.h"
#include "bench/sweep/make_launch_plan.h"
#include "reports/document/settings.h"
#include "reports/text/text.h"

namespace nearmetal {
namespace {

constexpr size_t most_layouts = 1000;

[[noreturn]] void refuse(const GridAxis& axis, const std::string& why) {
  throw std::invalid_argument(axis.source + ": " + why);
}

// The name in the table of settings: "duration_seconds" of "duration".
std::string table_name(const std::string& layout_name) {
  std::string name = layout_name;
  for (const Setting& setting : settings_of_run()) {
    if (layout_name_of(setting) == layout_name) name = setting.name;
  }
  return name;
}

// Whether a run that has one of them cannot have the other, by their names in layout files.
bool collide(const std::string& setting, const std::string& other) {
  return setting == other || exclude_each_other(table_name(setting), table_name(other));
}

// The value as the parser of the option reads it: 2 for "002". The batch of all ranks is no option.
std::string meaning_of(const GridAxis& axis, const std::string& value) {
  if (axis.setting == global_batch) {
    return std::to_string(parse_number<int64_t>(axis.source, value, {1, 1e9}));
  }
  Workload workload;
  set_by_layout_name(workload, axis.setting, value, axis.source);
  return joined(run_arguments(workload));
}

void check_values(const GridAxis& axis) {
  if (axis.values.empty()) refuse(axis, "it names no value");
  std::map<std::string, std::string> known;  // by what they mean
  for (const std::string& value : axis.values) {
    const auto [same, is_new] = known.emplace(meaning_of(axis, value), value);
    if (is_new) continue;
    refuse(axis, same->second == value ? "it names " + value + " twice"
                                       : same->second + " and " + value + " are the same value");
  }
}

void check_axis(const GridAxis& axis, const std::vector<GridAxis>& earlier, const Workload& asked) {
  check_values(axis);
  for (const GridAxis& other : earlier) {
    if (!collide(axis.setting, other.setting)) continue;
    refuse(axis, other.source + " says it already; give one of them");
  }
  for (const Setting& setting : settings_of_run()) {
    if (!asked.is_given(setting.name) || !collide(axis.setting, layout_name_of(setting))) continue;
    refuse(axis, flag_of(setting) + " says it already; give one of them");
  }
}

// Refuses what a workload of the same file says too: neither overrides the other.
void require_in_grid_alone(const GridAxis& axis, const Settings& workload,
                           const std::string& place) {
  for (const auto& [setting, value] : workload.texts) {
    if (!collide(axis.setting, setting)) continue;
    refuse(axis, place + "/" + setting + " says it already; give one of them");
  }
}

// A setting of a job by itself would override the combination.
void require_in_no_job(const GridAxis& axis, const std::vector<Layout>& layouts) {
  for (const Layout& layout : layouts) {
    for (size_t job = 0; job < layout.jobs.size(); ++job) {
      require_in_grid_alone(axis, layout.jobs[job].workload,
                            layout.source + "/jobs/" + std::to_string(job) + "/workload");
    }
  }
}

void settle_axes(LayoutFile& file, const std::vector<GridAxis>& of_command_line,
                 const Workload& asked) {
  for (const GridAxis& axis : file.grid.axes) {
    require_in_grid_alone(axis, file.workload, "/workload");
    for (const Layout& layout : file.layouts) {
      require_in_grid_alone(axis, layout.workload, layout.source + "/workload");
    }
  }
  std::erase_if(file.grid.axes, [&](const GridAxis& axis) {
    return std::ranges::any_of(
        of_command_line, [&](const GridAxis& over) { return collide(axis.setting, over.setting); });
  });
  std::vector<GridAxis> all = of_command_line;
  std::ranges::move(file.grid.axes, std::back_inserter(all));
  file.grid.axes.clear();
  for (const GridAxis& axis : all) {
    check_axis(axis, file.grid.axes, asked);
    require_in_no_job(axis, file.layouts);
    file.grid.axes.push_back(axis);
  }
}

// The first axis changes last.
std::vector<Settings> combinations(const Grid& grid) {
  std::vector<Settings> all = {{}};
  for (const GridAxis& axis : grid.axes) {
    std::vector<Settings> longer;
    for (const Settings& shorter : all) {
      for (const std::string& value : axis.values) {
        longer.push_back(shorter);
        longer.back().texts[axis.setting] = value;
      }
    }
    all = std::move(longer);
  }
  return all;
}

std::string name_of(const Layout& layout, bool one_of_several, const Grid& grid,
                    const Settings& combination) {
  std::vector<std::string> words;
  if (one_of_several) words.push_back(layout.name);
  for (const GridAxis& axis : grid.axes) {
    if (axis.values.size() == 1) continue;
    words.push_back(axis.setting + " " + combination.texts.at(axis.setting));
  }
  return words.empty() ? layout.name : joined(words);
}

}  // namespace

GridAxis grid_axis_from(const std::string& text) {
  const size_t sign = text.find('=');
  if (sign == 0 || sign == text.npos) {
    throw std::invalid_argument("--grid takes a setting and its values, such as batch=32,64; '" +
                                text + "' is none");
  }
  GridAxis axis{text.substr(0, sign), comma_separated(text.substr(sign + 1)), ""};
  std::ranges::replace(axis.setting, '-', '_');
  axis.source = "--grid " + axis.setting;
  return axis;
}

void expand_grid(LayoutFile& file, const std::vector<GridAxis>& of_command_line,
                 const Workload& asked) {
  settle_axes(file, of_command_line, asked);
  if (file.grid.axes.empty()) return;
  if (combinations_of(file.grid) > most_layouts / file.layouts.size()) {
    refuse(file.grid.axes.front(), "the grid has too many combinations: at most " +
                                       std::to_string(most_layouts) + " can be run in one sweep");
  }
  std::vector<Layout> expanded;
  for (const Layout& layout : file.layouts) {
    for (const Settings& combination : combinations(file.grid)) {
      Layout& one = expanded.emplace_back(layout);
      one.grid = GridPoint{layout.name, combination.texts};
      one.name = name_of(layout, file.layouts.size() > 1, file.grid, combination);
    }
  }
  file.layouts = std::move(expanded);
}

}  // namespace nearmetal
