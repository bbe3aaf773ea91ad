// The fields of a report, in the order of the document, with what must hold of them. Whatever reads
// reports, writes them or describes them follows these lists: a field is declared here alone.
#include "reports/json/report_fields.h"

#include "reports/document/settings.h"

namespace nearmetal::json {

void fields(Archive& field, ImportedSource& source) {
  field.type("imported_source", "A published file that results were read from");
  field("file", source.file, "Its name, without folders");
  field("sha256", source.sha256, hash, "Hash of the whole file");
  field("format", source.format);
  field("origin", source.origin, "Where it was published; null: not stated");
}

void fields(Archive& field, ImportedRun& run) {
  field.type("imported_run",
             "A result from a published file. What the file does not say is null or absent");
  field("source", run.source, at_least(0), "Index into sources");
  field("line", run.line, at_least(1),
        "Line with which the result begins; null: the file has none");
  field("number", run.number, at_least(0), "Its place among the results of the file");
  field("started_at", run.started_at, time_stamp, "RFC 3339, UTC");
  field("world_size", run.world_size, at_least(1), "Number of GPUs");
  field("throughput_images_per_second", run.throughput, above(0), "Images/s of all GPUs");
  field("bus_bandwidth_bytes_per_second", run.bus_bandwidth, above(0), "As nccl-tests defines it");
  field("work", run.work, "What must agree between runs that are compared");
  field("facts", run.facts, "What else the file says, by its own names");
}

void fields(Archive& field, Invocation& invocation) {
  field.type("invocation", "What was asked");
  field("argv", invocation.argv);
  field("started_at", invocation.started_at, time_stamp, "RFC 3339, UTC");
  field.settings("config", invocation.config, invocation.origins,
                 "Every setting as it ran, and who chose it; null: results are imported");
  field("config_sha256", invocation.config_sha256, hash,
        "Hash of the settings that decide what is computed; null: results are imported");
}

void fields(Archive& field, ArmShare& share) {
  field.type("share", "How the jobs have one GPU, or the same CPUs");
  field("way", share.mode,
        "One job alone; jobs one after another, at once in time slices, through an MPS daemon, or "
        "so on multiprocessors of their own, on MIG devices, or each on the vGPU of its VM");
  field("jobs", share.jobs, at_least(1));
  field("threads_percent", share.threads_percent, within(1, 100),
        "Share of the multiprocessors, by job, those of neighbours last; empty: no limit");
  field("memory_gib", share.memory_gib, at_least(0),
        "Memory of the GPU, by job, 0: no limit; empty: none has one");
  field.added("profiles", share.profiles,
              "Profiles of MIG devices (the UUID where it is not known) or vGPUs, by job, those of "
              "neighbours last; empty: other ways");
  field.added("neighbours", share.neighbours,
              "What each process does that trains nothing: copy, compute or pcie");
}

void fields(Archive& field, ArmSpeedup& speedup) {
  field.type("speedup", "Throughput against that of the arm with the fewest ranks");
  field("against", speedup.against,
        "That arm; itself: it is that one, whose speedup is held to be");
  field("ranks", speedup.ranks, at_least(1));
  field("speedup", speedup.speedup, above(0), "Throughput / that of one rank of that arm");
  field("speedup_lower", speedup.speedup_lower, "95 % interval of the speedup");
  field("speedup_upper", speedup.speedup_upper);
  field("efficiency", speedup.efficiency, above(0), "Speedup / ranks");
  field("efficiency_lower", speedup.efficiency_lower);
  field("efficiency_upper", speedup.efficiency_upper);
}

void fields(Archive& field, Executable& executable) {
  field.type("executable", "A build of the program that an arm ran in place of the one at hand");
  field("path", executable.path);
  field("sha256", executable.sha256, hash, "Hash of the file");
  field("modules_sha256", executable.modules_sha256,
        "Hashes of the modules that it loads, by the name of their file");
}

void fields(Archive& field, GridPoint& point) {
  field.type("grid_point", "Where an arm stands in the grid of a sweep");
  field("layout", point.layout, "Layout that runs with each combination of the grid");
  field("settings", point.settings,
        "Settings of this combination, by their names in layout files, as their text");
}

void fields(Archive& field, Arm& arm) {
  field.type("arm", "One of the configurations of a report, measured by one or more runs");
  field("name", arm.name);
  field("kind", arm.kind);
  field.added("config", arm.config,
              "Settings by name, where they are not those of the invocation; else null");
  field.added("workloads", arm.workloads,
              "Settings of each job by name, where jobs differ in them: then `config` is that of "
              "the first; else empty. Since 1.10");
  field.added("scaling", arm.scaling,
              "In a sweep over several numbers of ranks: the same batch on each rank, or in all; "
              "null: one number, or no sweep");
  field.added("speedup", arm.speedup,
              "In a sweep over several numbers of ranks, as that sweep found it: `report` finds it "
              "anew from the runs; null: as scaling. Since 1.8");
  field.added("share", arm.share,
              "How the jobs have one GPU, or the same CPUs; null: what a job takes is its own");
  field.added("executable", arm.executable,
              "The program that a layout file named for the arm; null: that of the report");
  field.added("grid", arm.grid, "In a sweep with a grid; else null. Since 1.10");
  field.added("unsupported", arm.unsupported, "Why there are no runs: what this machine cannot do");
  field("runs", arm.runs);
  field.added(
      "imported", arm.imported,
      "Results of other programs, in place of runs; empty unless the kind is imported; since "
      "1.9");
}

void fields(Archive& field, Report& report) {
  field.type("report",
             "What was asked, what was found and what was measured. SI units. Unknown values are "
             "null, with the reason under the same name in `unknown` of the object; a null that is "
             "not in `unknown` does not apply or was not asked for. Fields that are not listed "
             "here are allowed: minor versions add them.");
  field("schema", report.schema, one_of("nearmetal/report"));
  field("schema_version", report.schema_version, readable_version,
        "Major: breaks readers; minor: adds");
  field("kind", report.kind);
  field("status", report.status);
  field("exit_code", report.exit_code, within(0, 255));
  field("tool", report.tool, "The one that wrote the report");
  field("invocation", report.invocation);
  field("environments", report.environments);
  field("arms", report.arms);
  field.added(
      "sources", report.sources,
      "The files that imported results are of; empty unless the kind is imported; since 1.9");
}

void fields(Archive& field, LossScale& scale) {
  field.type("loss_scale", "Factor of the loss before the backward pass");
  field("initial", scale.initial, above(0));
  field("dynamic", scale.dynamic);
}

template <class Check>
Check check_of(const Setting& setting) {
  if constexpr (std::is_same_v<Check, Range>) {
    return setting.range;
  } else if constexpr (std::is_same_v<Check, Names>) {
    return setting.resolved ? Names{0} : setting.names;
  } else {
    return any_text;
  }
}

void fields(Archive& field, RunConfig& config) {
  field.type("config", "Every setting of a run");
  visit_settings(
      [&](const Setting& setting, auto& value) {
        const auto check = check_of<CheckOf<std::decay_t<decltype(value)>>>(setting);
        if (setting.added) {
          field.added(setting.name, value, check, setting.meaning);
        } else {
          field(setting.name, value, check, setting.meaning);
        }
      },
      config);
}

}  // namespace nearmetal::json
