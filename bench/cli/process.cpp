#include "bench/cli/process.h"

#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <mutex>
#include <new>
#include <sstream>
#include <stdexcept>
#include <string_view>
#include <system_error>
#include <thread>
#include <typeinfo>
#include <variant>

#include "base/sha256.h"
#include "base/text.h"
#include "base/text_table.h"
#include "models/load_module.h"

namespace nearmetal {
namespace {

namespace fs = std::filesystem;

void occupy_standard_descriptors() {
  for (const int standard : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(standard, F_GETFD) >= 0) continue;
    // The lowest that is free: this one. Not for the use that is made of it.
    open("/dev/null", standard == STDIN_FILENO ? O_WRONLY : O_RDONLY);
  }
}

// operator new calls this.
[[noreturn]] void refuse_memory() {
  memory_ran_out = true;
  throw NotEnoughMemory();
}

// Threads, destructors and what says that it throws nothing have nobody to catch what they throw.
// GCC does not always catch it for them before it calls this.
[[noreturn]] void end_untidily() {
  try {
    if (const std::exception_ptr thrown = std::current_exception()) std::rethrow_exception(thrown);
    if (memory_ran_out) throw NotEnoughMemory();
    throw std::logic_error("std::terminate()");
  } catch (const std::exception& error) {
    tell(error);
    _exit(static_cast<int>(exit_code_of(error)));
  }
}

// Before main() already, for what is made before it.
[[gnu::constructor(101)]] void watch_for_failures() {
  std::set_new_handler(refuse_memory);
  std::set_terminate(end_untidily);
}

void shorten_path() {
  const char* path = std::getenv("PATH");
  if (path == nullptr) return;
  std::string kept;
  for (const std::string& folder : split(path, ":")) {
    if (folder.starts_with('/')) kept += (kept.empty() ? "" : ":") + folder;
  }
  // An empty one would be the current folder, too.
  kept.empty() ? unsetenv("PATH") : setenv("PATH", kept.c_str(), 1);
}

std::optional<double> age_seconds() {
  const auto process = process_stat("/proc/self/stat");
  timespec now{};
  if (!process || clock_gettime(CLOCK_BOOTTIME, &now) != 0) return std::nullopt;
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec) -
         process->start_ticks / static_cast<double>(sysconf(_SC_CLK_TCK));
}

template <class... Errors>
bool is(const std::exception& error) {
  return (... || (dynamic_cast<const Errors*>(&error) != nullptr));
}

// What only a mistake in this program throws.
bool is_bug(const std::exception& error) {
  return (is<std::logic_error>(error) && !is<std::invalid_argument>(error)) ||
         is<std::bad_optional_access, std::bad_variant_access, std::bad_cast,
            std::bad_function_call>(error);
}

// The thread library says the reason alone.
std::string text_of(const std::system_error& error) {
  if (error.code() != std::errc::resource_unavailable_try_again) return error.what();
  const bool of_a_thread = error.what() == error.code().message();
  return std::string(of_a_thread ? "a thread cannot be started: " : "") + error.what() +
         "; threads and processes are limited by ulimit -u and the cgroup's pids.max";
}

// sigwait() takes what is ignored, too.
bool is_ignored(int signal) {
  struct sigaction action {};
  return sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

// `timeout`, and supervisors that signal a group, too, express one wish twice within microseconds.
void swallow_repeats(const sigset_t& signals) {
  using std::chrono::steady_clock;
  const auto end = steady_clock::now() + std::chrono::seconds(1);
  for (auto left = end - steady_clock::now(); left.count() > 0; left = end - steady_clock::now()) {
    const timespec wait{.tv_sec = 0, .tv_nsec = std::min(left.count(), 999'999'999L)};
    sigtimedwait(&signals, nullptr, &wait);
  }
}

// A note is a header, the name of its owner and what that says, both filled up to 4 bytes.
std::string_view build_id_in(std::string_view notes) {
  constexpr std::string_view owner("GNU\0", 4);
  const auto padded = [](size_t size) { return (size + 3) / 4 * 4; };
  ElfW(Nhdr) note{};
  while (notes.size() >= sizeof note) {
    std::memcpy(&note, notes.data(), sizeof note);
    const size_t begin = sizeof note + padded(note.n_namesz);
    if (begin + note.n_descsz > notes.size()) break;
    if (note.n_type == NT_GNU_BUILD_ID && notes.substr(sizeof note, note.n_namesz) == owner) {
      return notes.substr(begin, note.n_descsz);
    }
    notes.remove_prefix(std::min(notes.size(), begin + padded(note.n_descsz)));
  }
  return {};
}

template <class T>
bool read_at(std::ifstream& file, size_t place, T* values, size_t count) {
  file.seekg(static_cast<std::streamoff>(place));
  return !!file.read(reinterpret_cast<char*>(values),
                     static_cast<std::streamsize>(count * sizeof(T)));
}

// The ID that the linker gave a program or library; empty where it gave none.
std::string build_id_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  ElfW(Ehdr) header{};
  if (!read_at(file, 0, &header, 1)) return "";
  std::vector<ElfW(Phdr)> parts(header.e_phnum);
  if (!read_at(file, header.e_phoff, parts.data(), parts.size())) return "";
  for (const ElfW(Phdr) & part : parts) {
    if (part.p_type != PT_NOTE) continue;
    std::string notes(part.p_filesz, '\0');
    if (!read_at(file, part.p_offset, notes.data(), notes.size())) return "";
    if (const std::string_view id = build_id_in(notes); !id.empty()) return std::string(id);
  }
  return "";
}

}  // namespace

void prepare_process() {
  occupy_standard_descriptors();
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);
  shorten_path();
}

ProcessClock::ProcessClock() : made_(std::chrono::steady_clock::now()) {
  const std::optional<double> age = age_seconds();
  // Ticks are rounded down, so that the age is never below 0. A minute to reach main() would be a
  // clock that does not fit, as in a sandbox with its own idea of boot time.
  const bool plausible = age && *age >= 0 && *age < 60;
  start_seconds_ = plausible ? *age : 0;
  clock_ = plausible ? "start of the process (/proc/self/stat)" : "first line of the program";
}

// Fields by their numbers in proc(5): 1 pid, 2 (name), which may hold anything, 3 state, 4 parent,
// 14 and 15 ticks of user and system, 22 start.
std::optional<ProcessStat> process_stat(const std::filesystem::path& file) {
  std::ifstream stream(file);
  std::string text;
  std::getline(stream, text, '\0');  // empty, too, where the process ends meanwhile
  const size_t open = text.find('('), close = text.rfind(')');
  if (open == std::string::npos || close == std::string::npos) return std::nullopt;
  ProcessStat found;
  found.name = text.substr(open + 1, close - open - 1);
  std::istringstream fields(text.substr(close + 1));
  std::string skipped;
  double user = 0, system = 0;
  fields >> skipped >> found.parent;
  for (int field = 5; field < 14; ++field) fields >> skipped;
  fields >> user >> system;
  for (int field = 16; field < 22; ++field) fields >> skipped;
  if (!(fields >> found.start_ticks)) return std::nullopt;
  found.cpu_ticks = user + system;
  return found;
}

ExitCode exit_code_of(const std::exception& error) {
  if (const auto* job = dynamic_cast<const JobFailure*>(&error)) return job->exit_code;
  if (is<NotAsExpected>(error)) return ExitCode::not_as_expected;
  if (is<std::invalid_argument>(error)) return ExitCode::usage;
  if (is<NotComparable>(error)) return ExitCode::not_comparable;
  if (is<InvalidReport>(error)) return ExitCode::invalid_report;
  if (is<NotSupported>(error)) return ExitCode::not_supported;
  if (is<OutputError>(error)) return ExitCode::output_failed;
  return ExitCode::run_failed;
}

std::string message_of(const std::exception& error) {
  if (is<std::bad_alloc>(error)) return NotEnoughMemory().what();
  if (const auto* file = dynamic_cast<const fs::filesystem_error*>(&error)) {
    return file->path1().string() + ": " + file->code().message();
  }
  if (const auto* system = dynamic_cast<const std::system_error*>(&error)) return text_of(*system);
  if (!is_bug(error)) return error.what();
  return std::string("this is a bug of nearmetal, please report it with the command: ") +
         error.what();
}

void tell(const std::exception& error) {
  static std::recursive_mutex telling;  // by the first thread alone, with which the process ends
  telling.lock();
  try {
    dprintf(STDERR_FILENO, "nearmetal: %s\n", printable(message_of(error)).c_str());
  } catch (const std::bad_alloc&) {
    dprintf(STDERR_FILENO, "nearmetal: %s\n", NotEnoughMemory().what());
  }
}

std::span<const ExitMeaning> exit_meanings() {
  using enum ExitCode;
  static constexpr ExitMeaning meanings[] = {
      {ok, "ok"},
      {gate_failed,
       "gate: shown worse, or changed by --fail-on any; --same-bits: bits differ; survey: a "
       "finding"},
      {usage, "wrong options or configuration"},
      {inconclusive,
       "gate: inconclusive under a strict policy, too few runs, or in doubt; survey: not judged"},
      {not_comparable, "not comparable, a metric or layout is missing, or a run was disturbed"},
      {invalid_report, "report unreadable or invalid, or without a complete run"},
      {run_failed,
       "the run failed: out of memory, an error of a device or library, a wrong answer, a bug"},
      {timed_out, "a job took longer than its limits, or a rank did not join or respond"},
      {not_supported, "not supported here: no GPU, driver, backend or mpirun"},
      {output_failed, "output could not be written"},
      {not_as_expected, "the machine is not as --expect-... says"},
      {hung_up, "hung up"},
      {interrupted, "interrupted"},
      {terminated, "terminated"},
  };
  return meanings;
}

bool should_report(const std::exception& error) {
  const auto* job = dynamic_cast<const JobFailure*>(&error);
  return job == nullptr || !job->reported;
}

ExitCode exit_code_of(Status status, ExitCode failure, int signal) {
  if (status == Status::partial && signal != 0) return exit_code_of_signal(signal);
  if (status == Status::complete || failure != ExitCode::ok) return failure;
  return status == Status::failed ? ExitCode::run_failed : ExitCode::terminated;
}

std::atomic<int> stop_signal = 0;
std::atomic<bool> memory_ran_out = false;

void catch_stop_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  if (!is_ignored(SIGHUP)) sigaddset(&signals, SIGHUP);  // as under nohup
  // A thread waits for them, all others block them: generated code of libraries may use the stack
  // pointer for other things, so that a handler on top of it would write where it must not.
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::thread([signals] {
    int signal = 0;
    if (sigwait(&signals, &signal) != 0) return;
    stop_signal.store(signal);
    const std::string text = std::string("\n") + stop_remark + "\n";
    // A message that does not get out is no loss.
    [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text.data(), text.size());
    swallow_repeats(signals);
    pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);  // the next one does what it always does
    while (true) pause();
  }).detach();
}

std::optional<std::string> own_build_id() {
  const std::string program = build_id_of("/proc/self/exe");
  if (program.empty()) return std::nullopt;
  std::string all = program;
  for (const fs::path& module : modules_of(program_path())) {
    all += module.filename().string() + build_id_of(module);
  }
  return sha256(all);
}

}  // namespace nearmetal
