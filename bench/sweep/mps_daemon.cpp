#include "bench/sweep/mps_daemon.h"

#include <cerrno>
#include <chrono>
#include <fstream>
#include <thread>

#include "base/errors.h"
#include "base/text.h"
#include "bench/cli/process.h"
#include "bench/environment/system_files.h"
#include "models/probe.h"

namespace nearmetal {
namespace {

namespace fs = std::filesystem;

constexpr const char* control_program = "nvidia-cuda-mps-control";
constexpr double start_patience_seconds = 10;  // of its start

// Keeps the daemon until its standard input ends, as it does however the sweep ends: `quit` with a
// limit, as clients may be left; then whatever is left of its process group. `kill -0` only looks
// whether the daemon is still there: that it is not is what is waited for.
constexpr const char* keeper_script = R"(
trap '' HUP INT TERM
export CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES="$2"
export CUDA_MPS_PIPE_DIRECTORY="$1/pipe" CUDA_MPS_LOG_DIRECTORY="$1/log"
{
  nvidia-cuda-mps-control -f </dev/null >"$1/out" 2>&1
  touch "$1/ended"
} &
daemon=$!
cat >/dev/null
echo 'quit -t 5' | timeout -k 2 10 nvidia-cuda-mps-control >/dev/null 2>&1
for tenth in $(seq 60); do
  kill -0 "$daemon" 2>/dev/null || break
  sleep 0.1
done
rm -rf "$1"
kill -KILL 0
)";

fs::path private_folder() {
  std::error_code error;
  std::string name = (fs::temp_directory_path(error) / "nearmetal-mps-XXXXXX").string();
  if (!error && mkdtemp(name.data()) == nullptr) error = {errno, std::generic_category()};
  for (const char* part : {"pipe", "log"}) {
    if (!error) fs::create_directory(fs::path(name) / part, error);
  }
  if (!error) return name;
  std::error_code ignored;
  fs::remove_all(name, ignored);
  throw NotSupported("no folder for an MPS daemon: " + name + ": " + error.message());
}

std::string last_line(const fs::path& file) {
  std::ifstream text(file);
  std::string last;
  for (std::string line; std::getline(text, line);) last = line;
  return last;
}

}  // namespace

std::optional<std::string> no_mps_reason() {
  if (is_on_path(control_program)) return std::nullopt;
  return std::string("there is no ") + control_program + " on PATH; it comes with the driver";
}

MpsDaemon::MpsDaemon(const std::set<int64_t>& gpus) {
  if (const auto reason = no_mps_reason()) throw NotSupported(*reason);
  folder_ = private_folder();
  const auto indices = transformed(gpus, [](int64_t gpu) { return std::to_string(gpu); });
  try {
    keeper_.emplace(keeper_script, std::vector{folder_.string(), joined(indices, ",")});
  } catch (const std::runtime_error& error) {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
    throw NotSupported("no MPS daemon: " + message_of(error));
  }
  const double until = steady_seconds() + start_patience_seconds;
  while (!is_there(folder_ / "pipe/control")) {
    if (is_there(folder_ / "ended") || steady_seconds() > until) {
      std::string why = last_line(folder_ / "log/control.log");
      if (why.empty()) why = last_line(folder_ / "out");
      keeper_->finish();
      throw NotSupported("the MPS daemon did not start" + (why.empty() ? "" : ": " + why));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

// In the foreground, the daemon and its servers log to their output, else into the folder of logs:
// "[2026-11-22 10:24:08.799 Server  2652] Client {PID: 2650, Context: 1} encountered a fatal GPU
// error." Of what follows such a line, all is its consequence.
std::optional<std::string> MpsDaemon::fault() const {
  for (const char* file : {"out", "log/server.log"}) {
    std::ifstream text(folder_ / file);
    for (std::string line; std::getline(text, line);) {
      if (lower_case(line).find("fatal") == line.npos) continue;
      const size_t end_of_stamp = line.starts_with('[') ? line.find("] ") : line.npos;
      return end_of_stamp == line.npos ? line : line.substr(end_of_stamp + 2);
    }
  }
  return std::nullopt;
}

}  // namespace nearmetal
