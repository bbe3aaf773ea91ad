#include "bench/commands/sweep.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <stdexcept>

#include "base/atomic_file.h"
#include "base/errors.h"
#include "base/text_table.h"
#include "bench/cli/output.h"
#include "bench/cli/process.h"
#include "bench/commands/compare.h"
#include "bench/commands/program.h"
#include "bench/environment/leave_out_host_info.h"
#include "bench/sweep/host_probe.h"
#include "bench/sweep/run_layout.h"
#include "bench/sweep/supported_layouts.h"
#include "bench/sweep/sweep_report.h"
#include "comm/launch/launch_plan.h"
#include "comm/layout/shell_text.h"
#include "comm/world.h"
#include "reports/json/json.h"

namespace nearmetal {
namespace {

// The command that asks for the same sweep, whatever its files are, with other options in their
// place. Behind "--" there are no options.
std::vector<std::string> with_files(const std::vector<std::string>& argv,
                                    const std::vector<std::string>& others) {
  std::vector<std::string> words;
  size_t i = 0;
  for (; i < argv.size() && argv[i] != "--"; ++i) {
    const std::string flag = argv[i].substr(0, argv[i].find('='));
    if (flag == "--output" || flag == "--resume") {
      if (flag == argv[i]) ++i;  // its value follows
    } else if (flag != "--force" && flag != "--keep-failed" && flag != "--allow-other-build") {
      words.push_back(argv[i]);
    }
  }
  words.insert(words.end(), others.begin(), others.end());
  for (; i < argv.size(); ++i) words.push_back(argv[i]);
  return words;
}

// The journal holds what merges the runs: the names of their hosts.
bool leaves_out_host_info(const Report& report) {
  return std::ranges::any_of(report.arms,
                             [&](const Arm& arm) { return config_of(report, arm).no_host_info; });
}

std::vector<std::string> host_names(const std::vector<Host>& hosts) {
  std::vector<std::string> names;
  for (const Host& host : hosts) {
    names.insert(names.end(), {host.name, address_of(host), host.node.value_or("")});
  }
  return names;
}

class Sweep {
 public:
  Sweep(const SweepForm& form, const Context& context)
      : form_(form),
        asked_by_(context.asked_by),
        words_(asked_by_ ? asked_by_->words : context.argv),
        terminal_(context.terminal),
        stop_(context.stop),
        plan_(make_launch_plan(form.request)) {
    const RunConfig& config = form.request.workload.config;
    terminal_.quiet = config.quiet;
    terminal_.rewrites = terminal_.rewrites && !config.quiet && !config.no_progress;
    report_.tool = build_info();
    report_.invocation.argv = context.argv;
    report_.invocation.origins = origins_of(form.request.workload.given);
    report_.invocation.started_at = time_stamp();
    report_.invocation.config = plan_.workloads.at(0).config;
    report_.invocation.config_sha256 = config_sha256(report_.invocation.config);
  }

  ExitCode run() {
    if (asked_by_) terminal_.remark(asked_by_->remarks);
    require_shares(plan_);
    require_mpirun(plan_);
    find_parts();
    choose_files();
    // After that: a journal belongs to the plan as it was asked for.
    std::erase_if(plan_.launches,
                  [&](const Launch& launch) { return unsupported_.contains(launch.layout); });
    terminal_.remark(choices_of(plan_));
    terminal_.remark(variables_left_here(plan_));
    look_at_hosts();
    show_duration();
    choose_kernels();
    for (const Launch& launch : plan_.launches) {
      if (stop_ != 0 || ended_ != ExitCode::ok) break;
      // A run before may have shown that it cannot run.
      if (!runs_->done(launch) && is_wanted(launch)) start(launch);
    }
    return finish();
  }

 private:
  void find_parts() {
    unsupported_ = layouts_without_parts(plan_, stop_, [this](const std::string& warning) {
      terminal_.error("warning: " + warning);
    });
    for (const auto& [layout, reason] : unsupported_) {
      const Layout& asked = plan_.file.layouts.at(layout);
      if (form_.request.fractions || asked.portable) continue;
      throw NotSupported(asked.source + ": " + reason);
    }
  }

  // What does not answer fails its layouts, with the reason.
  void look_at_hosts() {
    const std::vector<Host> hosts = hosts_taken(plan_);
    if (hosts.size() == 1 || launches_left().empty()) return;
    const std::vector<HostFacts> facts = ask_hosts(hosts, plan_.file.launcher);
    if (facts.empty()) {
      terminal_.remark(
          "the hosts were not compared before the first run, as not all answered; "
          "`nearmetal doctor` with a layout file says why");
    }
    const std::string one_machine = hosts_of_one_machine(hosts, facts);
    if (!one_machine.empty()) {
      throw NotAsExpected(FailureCode::expect_hosts, plan_.source + one_machine);
    }
    for (const std::string& foreign : foreign_addresses(hosts, facts)) {
      terminal_.error("warning: " + foreign + ": correct it, unless a router translates it");
    }
    for (const std::string& unlike : unlike_variables(facts)) {
      terminal_.error("warning: ranks will differ: " + unlike + "; --variable sets it for all");
    }
    if (plan_.file.launcher.network) return;
    for (const SharedAddress& shared : shared_addresses(facts)) {
      plan_.file.launcher.networks_left_out.push_back(shared.network());
      terminal_.remark(text_of(shared) + ": MPI and NCCL leave this network out");
    }
  }

  std::vector<Launch> launches_left() const {
    std::vector<Launch> left = plan_.launches;
    std::erase_if(
        left, [this](const Launch& launch) { return runs_->done(launch) || !is_wanted(launch); });
    return left;
  }

  bool is_wanted(const Launch& launch) const {
    return !form_.purpose || form_.purpose->wants(plan_, launch, runs_->entries());
  }

  void show_duration() const {
    const std::vector<Launch> left = launches_left();
    const PlannedTime time = planned_time(plan_, left);
    constexpr double long_seconds = 3600;
    if (left.empty() || (plan_.file.grid.axes.empty() && time.seconds() < long_seconds)) return;
    terminal_.remark("estimated duration: " + planned_time_text(time));
  }

  std::vector<std::string> inputs() const {
    std::vector<std::string> files = files_read_by(form_.request.workload.config);
    append(files, files_of(plan_, form_.request));
    if (form_.resume.journal) files.push_back(*form_.resume.journal);
    return files;
  }

  std::string standard_name() const {
    return default_report_name(form_.purpose ? form_.purpose->name : "sweep",
                               report_.invocation.config.model);
  }

  void choose_files() {
    output_ = form_.output.value_or(standard_name());
    std::error_code ignored;  // what is not there is none
    if (output_ == "-" || std::filesystem::is_character_file(output_, ignored)) {
      throw std::invalid_argument("--output: the journal lies beside the report; name a file");
    }
    require_no_input(output_, inputs());
    require_writable(output_, form_.force);
    std::vector<Executable> executables;
    for (const Layout& layout : plan_.file.layouts) {
      if (layout.build) executables.push_back(*layout.build);
    }
    runs_.emplace(form_.resume, output_, form_.force, plan_,
                  JournalOrigin{plan_sha256(plan_), shell_quoted(with_files(words_, {})),
                                report_.tool, executables},
                  terminal_);
  }

  void choose_kernels() {
    std::set<size_t> layouts;
    for (const Launch& launch : launches_left()) {
      if (chooses_kernels_alone(plan_, launch.layout)) layouts.insert(launch.layout);
    }
    if (layouts.empty()) return;
    const auto failures = choose_plans_of_shares(plan_, layouts, stop_,
                                                 progress_of("choosing kernels on each share"));
    terminal_.clear_progress();
    for (const auto& [layout, failure] : failures) {
      terminal_.error("warning: " + plan_.placements.at(layout).layout +
                      ": its kernels were not chosen alone: " + failure);
    }
  }

  ShowProgress progress_of(const std::string& what) {
    if (!terminal_.rewrites) terminal_.remark(what);
    return [this, what](const std::string& progress) {
      terminal_.show_progress(what + ", " + progress + time_left_.text());
    };
  }

  void start(const Launch& launch) {
    const std::string name = plan_.placements[launch.layout].layout;
    const auto left = std::ssize(launches_left());
    const int64_t before = std::ssize(runs_->entries());
    std::string what = "run " + std::to_string(before + 1) + " of " + std::to_string(before + left);
    if (plan_.placements.size() > 1) what += ": " + name;
    time_left_.begin_run(left);
    runs_->pin_choices(plan_, launch.layout);
    LaunchOutcome outcome = run_layout(plan_, launch.layout, stop_, progress_of(what));
    time_left_.end_run();
    terminal_.clear_progress();
    if (stop_ != 0 && outcome.reports.empty()) outcome = {};  // killed before it reported anything
    require_work_as_before(launch.layout, outcome);
    JournalEntry entry{static_cast<int64_t>(launch.layout), launch.repeat,
                       report_of_launch(plan_, launch.layout, outcome, stop_)};
    std::optional<std::string>& unsupported = entry.report.arms.at(0).unsupported;
    if (runs_->has_run(launch.layout)) unsupported.reset();  // what ran before can run
    if (outcome.code != ExitCode::ok) {
      terminal_.error(name + (unsupported ? ": unsupported: " : " failed: ") + *outcome.failure);
    } else if (entry.report.status == Status::failed) {  // by what its jobs did together
      terminal_.error(name + ": " + status_text(entry.report.arms[0].runs[0]));
    }
    show_result(what, entry.report);
    cut_short_ = stop_ != 0 && entry.report.status != Status::complete;
    ended_ = runs_->add(std::move(entry), cut_short_);
  }

  // An arm has one configuration, which is that of each of its runs.
  void require_work_as_before(size_t layout, LaunchOutcome& outcome) const {
    if (outcome.reports.empty()) return;
    const std::string other = runs_->other_work_than_before(layout, outcome.reports);
    if (other.empty()) return;
    outcome = {std::move(outcome.reports), ExitCode::run_failed,
               "it did other work than the runs before: " + other, std::move(outcome.neighbours)};
  }

  ExitCode exit_code() const {
    if (stop_ != 0) return exit_code_of_signal(stop_);
    return exit_code_of(report_.status, ended_ != ExitCode::ok ? ended_ : runs_->exit_code(),
                        stop_);
  }

  void show_result(const std::string& what, const Report& report) {
    const Run& run = report.arms[0].runs[0];
    if (report.status == Status::complete) terminal_.remark(what + ": " + result_text(run));
  }

  bool has_file() const { return !form_.only_named_file || form_.output; }

  // The journal goes once the report holds all that it holds, and there is nothing to go on with.
  ExitCode finish() {
    const bool all = !cut_short_ && launches_left().empty();
    report_ = report_of_sweep(plan_, unsupported_, runs_->entries(), std::move(report_));
    if (!all) report_.status = std::max(report_.status, Status::partial);
    ExitCode code = exit_code();
    if (form_.purpose) {
      const ExitCode found = form_.purpose->conclude(report_);
      if (code == ExitCode::ok) code = found;
    }
    report_.exit_code = static_cast<int>(code);
    if (leaves_out_host_info(report_)) leave_out_host_info(report_, host_names(plan_.file.hosts));
    const bool written = !has_file() || write();
    if (!written && code == ExitCode::ok) code = ExitCode::output_failed;
    print();
    if (has_file() && written) terminal_.remark("report: " + output_);
    if (all && written && !runs_->any_failed()) {
      runs_->remove_journal();
    } else {
      show_how_to_continue(all && written ? "take failed runs again with: " : "go on with: ");
    }
    return code;
  }

  void print() const {
    if (form_.purpose) {
      form_.purpose->print(report_, terminal_);
    } else if (asked_by_ && !form_.json) {
      asked_by_->print(terminal_.out, report_);
    } else if (!form_.json) {
      print_sweep(terminal_.out, report_, terminal_.colour, form_.costs);
    }
    if (form_.json) terminal_.out << to_json(report_) << std::flush;
  }

  bool write() const {
    try {
      write_report_file(output_, to_json(report_), form_.force, standard_name());
      return true;
    } catch (const OutputError& error) {
      terminal_.error(error.what());
      return false;
    }
  }

  // The report that holds all takes the place of this one.
  void show_how_to_continue(const std::string& what) {
    std::vector<std::string> files = {"--resume", runs_->path().string()};
    if (has_file()) files.insert(files.end(), {"--output", output_, "--force"});
    if (form_.json && std::ranges::find(words_, "--json") == words_.end()) {
      files.emplace_back("--json");
    }
    terminal_.remark(what + printable(shell_quoted(with_files(words_, files))));
  }

  const SweepForm& form_;
  const std::optional<AskedBy>& asked_by_;
  const std::vector<std::string>& words_;  // the words that ask for this sweep
  Terminal terminal_;
  const std::atomic<int>& stop_;
  LaunchPlan plan_;
  std::map<size_t, std::string> unsupported_;  // layouts, and why
  Report report_;
  std::string output_;
  std::optional<SweepRuns> runs_;
  bool cut_short_ = false;         // the last run, by a stop
  ExitCode ended_ = ExitCode::ok;  // why it goes no further, but for a stop
  TimeLeft time_left_;
};

constexpr const char* sweep_examples = R"(
Examples:
  nearmetal sweep                                       1, 2, 4, ... all GPUs of this machine
  nearmetal sweep 1x1x2 '2*(1x1x1)' --repeats 8         one job on two GPUs, and two jobs at once
  nearmetal sweep dell_vms --output dell.json           the layouts of a file, here a shipped one
  nearmetal sweep 1x1x1 --grid batch=64,128,256         one job with each of these batches
  nearmetal sweep --fractions 4 --repeats 5             four jobs on one GPU, in every way
  nearmetal sweep --fractions 4 --batches 32,64,128     the same, each with its best batch, too
  nearmetal sweep --fractions 2 --neighbours copy,pcie  one job beside one that only disturbs
  nearmetal sweep --price-per-gpu-hour 4.20             also hours and cost to train on each
  nearmetal report dell.json --format html --output dell.html

`nearmetal plan` with the same layouts prints what would start. Every run is written to the journal
(dell.jsonl, beside the report) before the next one starts; the first Ctrl-C stops after the step
and writes the report. --resume continues a journal, also with more --repeats than before. On
this machine CUDA_VISIBLE_DEVICES limits which GPUs are used.)";

void add_sweep_options(Options& options, SweepForm& form) {
  add_layout_options(options, form.request);
  options.path("--mig-config", "FILE[#LABEL]", form.request.mig_config,
               "mig-parted file; start nothing unless the GPUs here match it");
  add_resume_options(options, form.resume);
  add_sweep_output_options(options, form);
  add_settings(options, form.request.workload, in_sweep);
  add_cost_options(options, form.costs);
  options.check([&form] { check(form.costs, !form.json); });
}

ExitCode run_sweep_command(const SweepForm& form, const Context& context) {
  catch_stop_signals();
  require_no_launcher("sweep");
  return run_sweep(form, context);
}

}  // namespace

ExitCode run_sweep(const SweepForm& form, const Context& context) {
  return Sweep(form, context).run();
}

void require_no_launcher(const char* command) {
  if (!is_launched()) return;
  throw std::invalid_argument(std::string(command) +
                              " starts the ranks of its jobs itself: start it without mpirun");
}

void add_sweep_output_options(Options& options, SweepForm& form) {
  RunConfig& config = form.request.workload.config;
  options.path("--output", "FILE", form.output,
               "report file [nearmetal-COMMAND-MODEL-TIME.report.json]");
  options.toggle("--force", form.force,
                 "replace an existing report, with the journal that it holds");
  options.toggle("--json", form.json, "also print the report on stdout, instead of the table");
  options.toggle("--quiet", config.quiet, "print no remarks and no progress");
  options.toggle("--no-progress", config.no_progress, "print no progress line");
}

void add_resume_options(Options& options, ResumeOptions& resume) {
  options.path("--resume", "JOURNAL", resume.journal,
               "continue what was stopped or killed; repeat failed runs");
  options.toggle("--keep-failed", resume.keep_failed,
                 "with --resume: leave failed runs as they are");
  options.toggle("--allow-other-build", resume.any_build,
                 "with --resume: accept another build than that of earlier runs");
}

Command sweep_command() {
  return make_command("sweep", "Run several layouts, each afresh several times, into one report",
                      std::string(short_form_text) + sweep_examples, add_sweep_options,
                      run_sweep_command);
}

}  // namespace nearmetal
