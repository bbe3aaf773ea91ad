#include "bench/sweep/mps_daemon.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "base/errors.h"
#include "tests/support/temporary_folder.h"

namespace nearmetal {
namespace {

using testing::HasSubstr;

// Stands in for NVIDIA's program: as a daemon until it is told to quit by another of it.
constexpr const char* fake_control = R"(#!/bin/sh
pipe=$CUDA_MPS_PIPE_DIRECTORY
if [ "$1" = -f ]; then
  [ -z "$FAIL" ] || { echo "the GPU is in use" >"$CUDA_MPS_LOG_DIRECTORY/control.log"; exit 1; }
  echo "$CUDA_VISIBLE_DEVICES $CUDA_DEVICE_ORDER" >"$(dirname "$PIDS")/gpus"
  echo $$ >"$PIDS"
  mkfifo "$pipe/control"
  read order <"$pipe/control"
  exit 0
fi
read order
echo "$order" >>"$PIDS"
[ -n "$DEAF" ] || echo "$order" >"$pipe/control"
)";

// A zombie, whose parent has not looked yet, is not.
bool is_alive(pid_t pid) {
  const std::string stat = content_of("/proc/" + std::to_string(pid) + "/stat");
  const size_t name_end = stat.rfind(") ");
  return name_end != stat.npos && stat[name_end + 2] != 'Z';
}

// Whether it holds within some seconds.
template <class Condition>
bool soon(const Condition& holds) {
  for (int tenth = 0; tenth < 250; ++tenth) {
    if (holds()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  return false;
}

struct MpsDaemonTest : testing::Test {
  MpsDaemonTest() {
    const auto program = folder.write("bin/nvidia-cuda-mps-control", fake_control);
    std::filesystem::permissions(program, std::filesystem::perms::owner_all);
    std::filesystem::create_directory(folder / "tmp");
    set("PATH", (folder / "bin").string() + ":" + path);
    set("TMPDIR", (folder / "tmp").string());
    set("PIDS", (folder / "pids").string());
  }
  ~MpsDaemonTest() override {
    for (const char* name : {"TMPDIR", "PIDS", "FAIL", "DEAF"}) unsetenv(name);
    setenv("PATH", path.c_str(), 1);
  }
  static void set(const char* name, const std::string& value) { setenv(name, value.c_str(), 1); }
  bool nothing_is_left() const { return std::filesystem::is_empty(folder / "tmp"); }
  pid_t daemon_pid() const {
    pid_t pid = 0;
    std::ifstream(folder / "pids") >> pid;
    return pid;
  }

  TemporaryFolder folder;
  const std::string path = getenv("PATH");
};

TEST_F(MpsDaemonTest, RunsInAFolderOfItsOwnUntilItIsDropped) {
  pid_t pid = 0;
  {
    const MpsDaemon daemon({1, 3});
    pid = daemon_pid();
    EXPECT_TRUE(is_alive(pid));
    EXPECT_EQ(content_of(folder / "gpus"), "1,3 PCI_BUS_ID\n");
    const std::vector<std::string> words = daemon.client_words();
    EXPECT_EQ(words.at(0), "env");
    EXPECT_THAT(words.at(1), HasSubstr("CUDA_MPS_PIPE_DIRECTORY=" + (folder / "tmp").string()));
    EXPECT_EQ(daemon.fault(), std::nullopt);
    const std::string log = words.at(2).substr(words.at(2).find('=') + 1);
    std::ofstream(log + "/server.log") << "Starting\nServer: Received fatal fault\nend\n";
    EXPECT_EQ(daemon.fault(), "Server: Received fatal fault");
    // As a server of CUDA 13.0 wrote it when a client read beyond its memory.
    std::ofstream(log + "/../out")
        << "[2026-11-22 10:24:08.569 Server  2652] Status of client {PID: 2650, Context ID: 1} is "
           "ACTIVE\n"
           "[2026-11-22 10:24:08.799 Server  2652] Client {PID: 2650, Context: 1} encountered a "
           "fatal GPU error.\n"
           "[2026-11-22 10:24:08.799 Server  2652] Server is handling a fatal GPU error.\n"
           "[2026-11-22 10:24:08.820 Server  2652] Server failed to recevie command with status "
           "806, assuming client {PID: 2650, Context ID: 1} exit\n";
    EXPECT_EQ(daemon.fault(), "Client {PID: 2650, Context: 1} encountered a fatal GPU error.");
  }
  EXPECT_TRUE(nothing_is_left());
  EXPECT_TRUE(soon([&] { return !is_alive(pid); }));
  EXPECT_THAT(content_of(folder / "pids"), HasSubstr("quit -t 5"));
}

TEST_F(MpsDaemonTest, EndsWithAProcessThatIsKilled) {
  const pid_t owner = fork();
  if (owner == 0) {
    const MpsDaemon daemon({0});
    for (;;) pause();
  }
  ASSERT_TRUE(soon([&] { return daemon_pid() > 0 && !nothing_is_left(); }));
  kill(owner, SIGKILL);
  waitpid(owner, nullptr, 0);
  EXPECT_TRUE(soon([&] { return nothing_is_left() && !is_alive(daemon_pid()); }));
}

TEST_F(MpsDaemonTest, OneThatDoesNotObeyIsKilled) {
  set("DEAF", "1");
  pid_t pid = 0;
  {
    const MpsDaemon daemon({0});
    pid = daemon_pid();
  }
  EXPECT_TRUE(nothing_is_left());
  EXPECT_TRUE(soon([&] { return !is_alive(pid); }));
}

TEST_F(MpsDaemonTest, SaysWhyThereIsNone) {
  EXPECT_EQ(no_mps_reason(), std::nullopt);
  set("FAIL", "1");
  try {
    const MpsDaemon daemon({0});
    ADD_FAILURE() << "it started";
  } catch (const NotSupported& error) {
    EXPECT_THAT(error.what(), HasSubstr("did not start: the GPU is in use"));
  }
  EXPECT_TRUE(nothing_is_left());
  set("PATH", "/nowhere");
  EXPECT_THAT(*no_mps_reason(), HasSubstr("nvidia-cuda-mps-control"));
  EXPECT_THROW(MpsDaemon({0}), NotSupported);
}

}  // namespace
}  // namespace nearmetal
