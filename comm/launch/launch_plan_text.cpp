#include "comm/launch/launch_plan_text.h"

#include <algorithm>
#include <array>
#include <map>

#include "base/text.h"
#include "base/text_table.h"
#include "comm/layout/peer_rules.h"
#include "comm/layout/shell_text.h"
#include "reports/document/settings.h"
#include "reports/document/warning.h"
#include "reports/json/archive.h"
#include "reports/json/json_writer.h"
#include "reports/json/report_fields.h"

namespace nearmetal {
namespace {

std::string gpu_text(const PlacedRank& rank) {
  if (!rank.gpu) return "none";
  if (!rank.mig) return std::to_string(*rank.gpu);
  const std::string& profile = rank.mig->profile;
  return std::to_string(*rank.gpu) + ": " + (profile.empty() ? "MIG" : profile) + " " +
         rank.mig->uuid;
}

// The value as a layout file writes it; empty where nothing is chosen.
template <class T>
std::string text_of(const Setting& setting, const T& value) {
  if constexpr (std::is_same_v<T, bool>) {
    return value ? "true" : "false";
  } else {
    return std::optional<std::string>(setting_text(setting, value)).value_or("");
  }
}

// "batch 32, model vgg16", of what a job does by itself, as the command line leaves it; empty: what
// its layout says.
std::string own_workload(const LaunchPlan& plan, size_t layout, size_t job) {
  const std::vector<Job>& jobs = plan.file.layouts[layout].jobs;
  if (job >= jobs.size()) return "";
  if (jobs[job].stress) return std::string("stress ") + to_string(*jobs[job].stress);
  std::map<std::string, std::string> settings;
  visit_settings(
      [&](const Setting& setting, const auto& value) {
        const std::string name = layout_name_of(setting), text = text_of(setting, value);
        if (jobs[job].workload.texts.contains(name) && !text.empty()) settings[name] = text;
      },
      plan.workloads.at(layout).of(job).config);
  std::vector<std::string> texts;
  for (const auto& [name, text] : settings) texts.push_back(name + " " + text);
  return joined(texts);
}

bool has_own_workload(const Layout& layout) {
  return std::ranges::any_of(
      layout.jobs, [](const Job& job) { return job.stress || !job.workload.texts.empty(); });
}

bool has_stages(const LaunchPlan& plan, size_t layout) {
  for (size_t job = 0; job < plan.placements[layout].jobs.size(); ++job) {
    if (plan.workloads.at(layout).of(job).config.pipeline > 1) return true;
  }
  return false;
}

// "1 of 4, replica 0" and the ranks of the stages before and behind.
void add_stage(const RunConfig& config, int64_t rank, std::vector<std::string>& row) {
  if (config.pipeline == 1) {
    row.insert(row.end(), {"whole network", "-"});
    return;
  }
  const int64_t stage = stage_of(config, rank);
  std::vector<std::string> neighbours;
  if (stage > 0) neighbours.push_back("rank " + std::to_string(rank - 1));
  if (stage + 1 < config.pipeline) neighbours.push_back("rank " + std::to_string(rank + 1));
  row.push_back(std::to_string(stage) + " of " + std::to_string(config.pipeline) + ", replica " +
                std::to_string(replica_of(config, rank)));
  row.push_back(joined(neighbours));
}

TextTable table_of(const LaunchPlan& plan, size_t layout) {
  const Placement& placement = plan.placements[layout];
  const bool emulated = placement.kind == Kind::emulated;
  const bool own = has_own_workload(plan.file.layouts[layout]);
  TextTable table;
  table.columns = {{"job", true}, {"rank", true}, {"host"}};
  if (emulated) table.columns.push_back({"VM", true});
  table.columns.insert(table.columns.end(), {{"GPU", true}, {"CPUs"}});
  const bool staged = has_stages(plan, layout);
  if (staged) table.columns.insert(table.columns.end(), {{"stage"}, {"neighbours"}});
  if (own) table.columns.push_back({"own workload"});
  for (size_t job = 0; job < placement.jobs.size(); ++job) {
    for (const PlacedRank& rank : placement.jobs[job].ranks) {
      std::vector<std::string> row = {std::to_string(job + 1), std::to_string(rank.rank),
                                      rank.host};
      if (emulated) row.push_back(std::to_string(*rank.vm));
      row.push_back(gpu_text(rank));
      row.push_back(rank.cpus.empty() ? "all" : rank.cpus);
      if (staged) add_stage(plan.workloads.at(layout).of(job).config, rank.rank, row);
      if (own) row.push_back(own_workload(plan, layout, job));
      table.rows.push_back(row);
    }
  }
  return table;
}

const char* relation_of_jobs(const std::optional<Share>& share) {
  constexpr std::array relations = {" at once, ",  // by SharingMode
                                    " one after another, ",
                                    " at once in time slices, ",
                                    " at once through an MPS daemon, ",
                                    " at once on reserved multiprocessors, ",
                                    " at once on MIG devices of their own, ",
                                    " at once on the vGPUs of their VMs, "};
  return relations.at(static_cast<size_t>(share ? share->mode : SharingMode::alone));
}

void print_layout(std::ostream& out, const LaunchPlan& plan, size_t index) {
  const Placement& placement = plan.placements[index];
  const auto jobs = static_cast<int64_t>(placement.jobs.size());
  print_line(out, "layout " + placement.layout + ": " + to_string(placement.kind) + ", " +
                      counted(jobs, "job") +
                      (jobs > 1 ? relation_of_jobs(placement.share()) : ", ") +
                      counted(placement.ranks(), "rank"));
  print_aligned(out, table_of(plan, index));
  for (const std::string& choice : choices_of(plan, index)) print_line(out, choice, "chosen: ");
  for (const auto& command : commands_of(plan, index)) {
    out << "\n  " << printable(shell_quoted(command)) << "\n";
  }
  out << "\n";
}

// The most names, or repeats, that are listed: a large grid would fill screens with them.
constexpr size_t longest_list = 20;

std::string folded(std::vector<std::string> names, const std::string& separator) {
  if (names.size() <= longest_list) return joined(names, separator);
  const size_t left_out = names.size() - longest_list;
  names.resize(longest_list);
  return joined(names, separator) + separator + std::to_string(left_out) + " more";
}

void print_order(std::ostream& out, const LaunchPlan& plan) {
  const bool random = plan.file.order == Order::randomised;
  const std::string order = plan.file.layouts.size() == 2 ? "ABBA" : "random";
  print_line(out,
             counted(static_cast<int64_t>(plan.launches.size()), "run") +
                 ", each started afresh, in this order" +
                 (random ? " (" + order + ", seed " + std::to_string(plan.file.seed) + ")" : ""));
  std::map<int64_t, std::vector<std::string>> layouts_of_repeats;
  for (const Launch& launch : plan.launches) {
    layouts_of_repeats[launch.repeat].push_back(plan.placements[launch.layout].layout);
  }
  const bool names_have_commas = std::ranges::any_of(plan.placements, [](const Placement& one) {
    return one.layout.find(',') != one.layout.npos;
  });
  const char* separator = names_have_commas ? "; " : ", ";
  size_t left = longest_list;
  for (const auto& [repeat, layouts] : layouts_of_repeats) {
    if (left-- == 0) break;
    print_line(out, folded(layouts, separator), "  repeat " + std::to_string(repeat) + ": ");
  }
  if (layouts_of_repeats.size() > longest_list) {
    out << "  " << layouts_of_repeats.size() - longest_list << " more repeats: --format json\n";
  }
  const TimeLimits& limits = plan.file.limits;
  print_line(out, "limits: start " + shortest(limits.start_seconds, 6) + " s, step " +
                      shortest(limits.step_seconds, 6) + " s, job " +
                      shortest(limits.job_seconds, 6) + " s");
}

}  // namespace

void print_plan(std::ostream& out, const LaunchPlan& plan) {
  if (!plan.file.grid.axes.empty()) {
    print_line(out, "grid on each layout: " + grid_text(plan.file.grid));
  }
  print_line(out, planned_time_text(planned_time(plan, plan.launches)), "estimated duration: ");
  out << "\n";
  for (size_t i = 0; i < plan.placements.size(); ++i) print_layout(out, plan, i);
  for (const UnsupportedArm& arm : plan.unsupported) print_line(out, unsupported_text(arm));
  print_order(out, plan);
  print_line(out,
             "`nearmetal sweep` starts these; --format sh prints a script that runs without it");
}

namespace json {
namespace {

struct PlannedMig : MigDevice {};

struct PlannedJob {
  std::vector<PlacedRank> ranks;
  std::vector<std::string> command;
};

struct PlannedLayout {
  std::string name;
  std::string kind;
  std::optional<SharingMode> share{};
  std::vector<PlannedJob> jobs{};
  std::optional<Executable> executable{};
  std::optional<GridPoint> grid{};
  std::vector<std::string> chosen{};
};

struct PlannedLimits : TimeLimits {};

struct PlanDocument {
  std::string schema = "nearmetal/plan";
  std::string schema_version = "1.5";
  std::vector<PlannedLayout> layouts{};
  std::vector<UnsupportedArm> unsupported;
  std::vector<Finding> findings;
  std::vector<Launch> launches;
  PlannedLimits limits;
  double estimated_seconds = 0;
};

void fields(Archive& field, PlannedMig& mig) {
  field.type("mig");
  field("uuid", mig.uuid);
  field("profile", mig.profile, "Empty: not known");
}

void fields(Archive& field, PlannedJob& job) {
  field.type("job");
  field("ranks", job.ranks);
  field("command", job.command,
        "The words of the command line, as they are passed on; no shell splits them");
}

void fields(Archive& field, PlannedLayout& layout) {
  field.type("layout");
  field("name", layout.name);
  field("kind", layout.kind, one_of("measured", "emulated"));
  field.added("share", layout.share,
              "How the jobs have the same GPUs, or CPUs; null: what a job takes is its own");
  field("jobs", layout.jobs,
        "Jobs that are started at once; one after another where the share is serial");
  field.optional("executable", layout.executable,
                 "The build of nearmetal that the layout names; not there: the launcher's program");
  field.optional("grid", layout.grid, "Not there: the sweep has no grid");
  field.added("chosen", layout.chosen,
              "Why jobs have the GPUs that they have, where these were chosen, as a text for each "
              "host of each job");
}

void fields(Archive& field, PlannedLimits& limits) {
  field.type("limits", "Times after which a job has failed");
  field("start_seconds", limits.start_seconds, above(0));
  field("step_seconds", limits.step_seconds, above(0));
  field("job_seconds", limits.job_seconds, above(0));
}

void fields(Archive& field, PlanDocument& plan) {
  field.type("plan",
             "What a sweep over layouts starts. Fields that are not listed here are allowed: minor "
             "versions add them.");
  field("schema", plan.schema, one_of("nearmetal/plan"));
  field("schema_version", plan.schema_version, readable_version);
  field("layouts", plan.layouts);
  field.added("unsupported", plan.unsupported,
              "Arms that were asked for and that this machine does not support");
  field.added(
      "findings", plan.findings,
      "Ranks that may not read one another's memory, by what is published of vGPUs and MIG");
  field("launches", plan.launches, "Fresh starts, in their order");
  field("limits", plan.limits);
  field.added(
      "estimated_seconds", plan.estimated_seconds, at_least(0),
      "For all launches, 15 s of each for start and warm-up; windows that are given in steps "
      "count nothing");
}

PlannedLayout planned_layout(const LaunchPlan& plan, size_t index) {
  const Placement& placement = plan.placements[index];
  const auto commands = commands_of(plan, index);
  PlannedLayout layout{.name = placement.layout, .kind = to_string(placement.kind)};
  if (placement.share()) layout.share = placement.share()->mode;
  layout.grid = plan.file.layouts[index].grid;
  layout.chosen = choices_of(plan, index);
  layout.executable = plan.file.layouts[index].build;
  for (size_t job = 0; job < placement.jobs.size(); ++job) {
    layout.jobs.push_back({placement.jobs[job].ranks, commands[job]});
  }
  return layout;
}

}  // namespace

void fields(Archive& field, PlacedRank& rank) {
  field.type("rank");
  field("rank", rank.rank, at_least(0));
  field("host", rank.host);
  field("address", rank.address);
  field("vm", rank.vm, at_least(0), "Emulated VM, counted on each host; null where none is");
  field("gpu", rank.gpu, at_least(0), "Index on the host; null: on CPUs");
  field("visible_gpu", rank.visible_gpu, at_least(0), "Index among the GPUs that the rank sees");
  field("cpus", rank.cpus, "CPUs that it may use; empty: not limited");
  field("variables", rank.variables, "Environment variables that are set for this rank");
  field.optional("mig", rank.mig ? std::optional(PlannedMig{*rank.mig}) : std::nullopt,
                 "The part of the GPU that it has; not there: all of it");
}

void fields(Archive& field, UnsupportedArm& arm) {
  field.type("unsupported_arm");
  field("name", arm.name);
  field("reason", arm.reason);
}

void fields(Archive& field, Launch& launch) {
  field.type("launch");
  field("layout", launch.layout, at_least(0), "Index into layouts");
  field("repeat", launch.repeat, at_least(1));
}

}  // namespace json

std::string plan_schema() {
  json::Json schema = json::SchemaWriter::document(json::PlanDocument{}, "Plan of nearmetal");
  for (const auto& [type, list] :
       {std::pair{"layout", "jobs"}, {"job", "ranks"}, {"job", "command"}}) {
    schema["$defs"][type]["properties"][list]["minItems"] = 1;
  }
  return json::schema_text(schema);
}

std::string plan_json(const LaunchPlan& plan) {
  json::PlanDocument document{.unsupported = plan.unsupported,
                              .findings = peer_findings(plan.placements, plan.file.hosts),
                              .launches = plan.launches,
                              .limits = {plan.file.limits},
                              .estimated_seconds = planned_time(plan, plan.launches).seconds()};
  for (size_t i = 0; i < plan.placements.size(); ++i) {
    document.layouts.push_back(json::planned_layout(plan, i));
  }
  return json::lines_of(document);
}

}  // namespace nearmetal
