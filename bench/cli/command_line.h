// What the user typed, checked.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "comm/layout/layout.h"
#include "models/gpu_part.h"
#include "reports/compare/compare.h"
#include "reports/compare/gate.h"
#include "reports/document/types.h"

namespace nearmetal {

/// Of compare, gate and rerun.
struct Judging {
  std::vector<std::string> base;  // FILE, FILE#ARM or FOLDER; of gate also the name of a baseline
  std::vector<std::string> next;
  CompareOptions options;
  GateOptions gate;
  int64_t reruns = 0;   // of gate: at most; of rerun: exactly, 0: as many as the report has
  int64_t window = 20;  // of gate: the latest runs of a baseline that count
  bool json = false;
  bool markdown = false;
  std::optional<std::string> html;   // files, besides what is printed
  std::optional<std::string> junit;  // of gate
  bool charts = true;                // of HTML
  bool force = false;
};

struct BaselineAction {
  enum class Kind { add, list, show };

  Kind kind = Kind::list;
  std::string name;
  std::vector<std::string> files;
};

struct ReportForm {
  std::vector<std::string> places;
  std::string format = "markdown";
  std::optional<std::string> output;
  bool force = false;
  bool charts = true;                    // of HTML
  std::optional<std::string> plot_data;  // folder for data and scripts of the charts
};

/// Of plan and sweep.
struct PlanForm {
  std::vector<std::string> layouts;  // one file, or short forms
  std::optional<std::string> hosts;
  std::optional<int64_t> fractions;       // jobs that share a GPU in every way
  std::vector<int64_t> batches;           // of those, each in turn
  std::vector<NeighbourLoad> neighbours;  // what all of those but one do
  std::optional<int64_t> repeats;
  std::optional<std::string> mig_config;  // of sweep: FILE or FILE#LABEL, which the GPUs must have
  std::string format = "text";
  std::optional<std::string> image;  // of containers
  std::optional<std::string> output;
  bool force = false;
};

struct MicroForm {
  std::vector<std::string> patterns;  // regular expressions; none: all but those of a step
  int64_t repetitions = 3;
  double seconds = 0.1;  // of one, at least
  bool list = false;
  bool json = false;
};

struct StressForm {
  std::string load;  // copy, compute, pcie, or a probe of micro
  double seconds = 10;
  bool json = false;
};

/// Of run: what each rank must find, or the job ends before it trains.
struct Expected {
  std::optional<std::string> gpu{};   // part of its name
  std::optional<std::string> uuid{};  // of the GPU, or of the MIG device
  std::optional<std::string> mig{};   // profile of the MIG device
  std::optional<std::string> vgpu{};  // profile of the vGPU
  std::optional<MachineKind> environment{};
};

struct CommandLine {
  enum class Command {
    help,
    version,
    run,
    export_tensors,
    compare,
    gate,
    baseline,
    rerun,
    report,
    plan,
    sweep,
    micro,
    stress,
    doctor,
    schema,
    validate,
    generate
  };

  Command command = Command::help;
  std::string help;  // of the command that --help followed
  std::vector<std::string> argv;
  RunConfig run;            // as typed: what depends on the device is still open
  Origins origins;          // of every setting of `run`
  bool conducted = false;   // by the sweep that started this process
  std::string arm = "run";  // how the report calls it
  bool through_mps = false;
  bool emulated = false;  // this run is part of what pretends to be several machines
  int64_t sharers = 1;    // jobs that are meant to be on the GPU, or the CPUs, at once
  std::optional<GpuPart> gpu_part;
  Expected expected;
  std::vector<std::string> run_flags;  // those typed that set them, as --flag=value
  Judging judging;
  BaselineAction baseline;
  ReportForm report;
  PlanForm plan;
  MicroForm micro;
  StressForm stress;
  std::optional<std::string> resume;  // journal of a sweep
  std::string baselines_folder = "baselines";
  bool doctor_json = false;
  std::optional<std::string> doctor_layout;      // file, whose hosts are tried
  std::optional<std::string> doctor_mig_config;  // FILE or FILE#LABEL
  std::vector<std::string> validate_files;
  std::string schema_name = "report";
  std::string generate_form;
};

/// `arguments` begins with the name of the program. Throws std::invalid_argument with one line that
/// says what was wrong and what would be right.
CommandLine parse_command_line(const std::vector<std::string>& arguments);

}  // namespace nearmetal
