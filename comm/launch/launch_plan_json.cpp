#include "comm/launch/launch_plan_json.h"

#include <cmath>
#include <stdexcept>

#include "comm/launch/launch_plan_text.h"
#include "comm/launch/planned_time.h"
#include "comm/layout/peer_rules.h"
#include "reports/json/json_text.h"
#include "reports/json/report_fields.h"
#include "reports/json/schema_writer.h"

namespace nearmetal {
namespace json {
namespace {

struct PlannedMig {
  std::string uuid;
  std::string profile;
};

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

struct PlannedLimits {
  double start_seconds = 0;
  double step_seconds = 0;
  double job_seconds = 0;
};

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

std::optional<PlannedMig> mig_of(const PlacedRank& rank) {
  if (!rank.mig) return {};
  return PlannedMig{rank.mig->uuid, rank.mig->profile};
}

void fields(Archive& field, PlannedMig& mig) {
  field.type("mig");
  field("uuid", mig.uuid);
  field("profile", mig.profile, "Empty: not known");
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
  field.optional("mig", mig_of(rank), "The part of the GPU that it has; not there: all of it");
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

namespace {

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

}  // namespace
}  // namespace json

namespace {

using json::Json;

json::PlannedLayout planned_layout(const LaunchPlan& plan, size_t index) {
  const Placement& placement = plan.placements[index];
  const auto commands = commands_of(plan, index);
  json::PlannedLayout layout{.name = placement.layout, .kind = to_string(placement.kind)};
  if (placement.share()) layout.share = placement.share()->mode;
  layout.grid = plan.file.layouts[index].grid;
  layout.chosen = choices_of(plan, index);
  if (const auto found = plan.executables.find(index); found != plan.executables.end()) {
    layout.executable = found->second;
  }
  for (size_t job = 0; job < placement.jobs.size(); ++job) {
    layout.jobs.push_back({placement.jobs[job].ranks, commands[job]});
  }
  return layout;
}

}  // namespace

std::string plan_schema() {
  Json schema = json::SchemaWriter::document(json::PlanDocument{}, "Plan of nearmetal");
  for (const auto& [type, list] :
       {std::pair{"layout", "jobs"}, {"job", "ranks"}, {"job", "command"}}) {
    schema["$defs"][type]["properties"][list]["minItems"] = 1;
  }
  return json::schema_text(schema);
}

std::string plan_json(const LaunchPlan& plan) {
  const TimeLimits& limits = plan.file.limits;
  json::PlanDocument document{
      .unsupported = plan.unsupported,
      .findings = peer_findings(plan.placements, plan.file.hosts),
      .launches = plan.launches,
      .limits = {limits.start_seconds, limits.step_seconds, limits.job_seconds},
      .estimated_seconds = planned_time(plan, plan.launches).seconds()};
  for (size_t i = 0; i < plan.placements.size(); ++i) {
    document.layouts.push_back(planned_layout(plan, i));
  }
  return json::lines_of(document);
}

}  // namespace nearmetal
