#include "bench/commands/repeat_run.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <stdexcept>
#include <vector>

#include "bench/cli/exit_status.h"
#include "models/errors.h"
#include "reports/compare/run_set.h"
#include "reports/document/run_arguments.h"
#include "reports/json/json.h"
#include "reports/text/text.h"

namespace nearmetal {
namespace {

namespace fs = std::filesystem;

// The first name that is free. What takes the source by its beginning, as new*.json does, must not
// take its repeats, too.
std::string name_of_repeat(const std::string& source) {
  std::string stem = fs::path(source).filename().string();
  for (const std::string ending : {".json", ".report"}) {
    if (stem.ends_with(ending)) stem.resize(stem.size() - ending.size());
  }
  for (int number = 1;; ++number) {
    std::string name = "./rerun-" + std::to_string(number) + "-of-" + stem + ".report.json";
    if (!fs::exists(name)) return name;
  }
}

std::string names_of(const std::vector<Arm>& arms) {
  std::vector<std::string> names;
  for (const Arm& arm : arms) names.push_back(arm.name);
  return joined(names);
}

// A Ctrl-C in a terminal, or its end, reaches the repeated run as well, which ends in order and
// writes what it measured: while one waits for that, it must not end here, and so end the run a
// second time.
class SignalsIgnored {
 public:
  SignalsIgnored()
      : interrupt_(std::signal(SIGINT, SIG_IGN)), hang_up_(std::signal(SIGHUP, SIG_IGN)) {}
  ~SignalsIgnored() { restore(); }
  SignalsIgnored(const SignalsIgnored&) = delete;
  SignalsIgnored& operator=(const SignalsIgnored&) = delete;

  void restore() const {
    std::signal(SIGINT, interrupt_);
    std::signal(SIGHUP, hang_up_);
  }

 private:
  sighandler_t interrupt_, hang_up_;
};

[[noreturn]] void become(const std::vector<std::string>& arguments) {
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  dup2(STDERR_FILENO, STDOUT_FILENO);  // which is for what the runs say together
  std::vector<char*> pointers;
  for (const std::string& argument : arguments) {
    pointers.push_back(const_cast<char*>(argument.c_str()));  // execv() does not write to them
  }
  pointers.push_back(nullptr);
  execv("/proc/self/exe", pointers.data());
  _exit(static_cast<int>(ExitCode::run_failed));
}

// Its status, as of waitpid().
int launch(const std::vector<std::string>& arguments) {
  const SignalsIgnored ignored;
  const pid_t child = fork();
  if (child < 0) throw std::runtime_error(std::string("no new process: ") + std::strerror(errno));
  if (child == 0) {
    ignored.restore();
    become(arguments);
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) throw std::runtime_error("the repeated run was lost");
  }
  return status;
}

ExitCode exit_code_of_status(int status) {
  return WIFSIGNALED(status) ? exit_code_of_signal(WTERMSIG(status))
                             : static_cast<ExitCode>(WEXITSTATUS(status));
}

// Never with the code of the run itself: that of a gate says what was compared.
void require_success(int status, const std::string& name) {
  const ExitCode code = exit_code_of_status(status);
  if (code == ExitCode::ok) return;
  const bool written = fs::exists(name);
  const std::string where = written ? "; what it measured is in " + name : "";
  constexpr std::array stops = {ExitCode::hung_up, ExitCode::interrupted, ExitCode::terminated};
  if (std::ranges::find(stops, code) != stops.end()) {
    throw JobFailure("the repeat was stopped" + where, code, false);
  }
  const std::string how = WIFSIGNALED(status)
                              ? std::string("was ended by ") + strsignal(WTERMSIG(status))
                              : "ended with exit code " + std::to_string(WEXITSTATUS(status));
  throw JobFailure("the repeat " + how + where, ExitCode::run_failed, false);
}

void require_repeatable(const Report& report, const std::string& source) {
  const std::string beginning = source + " cannot be repeated: ";
  const auto refuse = [&](const std::string& why) { throw std::invalid_argument(beginning + why); };
  if (report.arms.size() != 1) {
    refuse("it holds " + counted(std::ssize(report.arms), "arm") +
           ", and one run is started at a time; name one as FILE#ARM: " + names_of(report.arms));
  }
  const Arm& arm = report.arms[0];
  const auto complete = std::find_if(arm.runs.begin(), arm.runs.end(),
                                     [](const Run& run) { return run.status == Status::complete; });
  if (complete == arm.runs.end()) {
    throw InvalidReport(beginning + "it holds no complete run to hold new ones against");
  }
  if (arm.share)
    refuse("its jobs share by " + std::string(to_string(arm.share->mode)) +
           ": repeat it by `nearmetal sweep`");
  if (arm.kind == Kind::emulated) refuse("it is emulated: repeat it by `nearmetal sweep`");
  const int64_t ranks = complete->world_size;
  if (ranks != 1) {
    refuse("it ran on " + counted(ranks, "rank") +
           ", and one process is started: repeat it by the launcher that started them");
  }
}

// Launches it with a report of that name.
void repeat_run(const Repeatable& repeated, const std::string& name, const Terminal& terminal) {
  const auto& [source, report] = repeated;
  std::vector<std::string> arguments = {"nearmetal"};
  for (const std::string& argument : run_arguments(config_of(report, report.arms[0]))) {
    arguments.push_back(argument);
  }
  arguments.push_back("--output=" + name);
  arguments.emplace_back("--quiet");
  if (!report.arms[0].runs[0].kernel_choices.empty()) arguments.push_back("--plans=" + source);
  terminal.remark("nearmetal: repeating " + source + " into " + name);
  require_success(launch(arguments), name);
}

}  // namespace

Repeatable repeatable(const std::string& place) {
  if (fs::is_directory(place)) {
    throw std::invalid_argument("--rerun repeats a report: name one instead of the folder " +
                                place);
  }
  const auto [file, arm] = report_place(place);
  Repeatable found{place, read_report(file)};
  if (!arm.empty()) keep_only_arm(found.report, arm, file);
  require_repeatable(found.report, place);
  return found;
}

void add_repeat(RunSet& set, const Repeatable& repeated, bool with_steps,
                const Terminal& terminal) {
  const std::string file = name_of_repeat(report_place(repeated.place).first);
  repeat_run(repeated, file, terminal);
  Report report = read_report(file);
  report.arms.at(0).name = repeated.report.arms[0].name;
  add_runs(set, report, file, "", with_steps);
}

}  // namespace nearmetal
