#include "bench/environment/child_process.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

namespace nearmetal {
namespace {

constexpr int gone_on = 5;

// How a child ends that takes this for its parent.
int status_of_child(pid_t parent) {
  const pid_t child = fork();
  if (child == 0) {
    end_with_parent(parent, SIGKILL);
    _exit(gone_on);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WEXITSTATUS(status);
}

TEST(ChildProcess, AChildWhoseParentHasEndedMeanwhileEnds) {
  EXPECT_EQ(status_of_child(getpid()), gone_on);
  EXPECT_NE(status_of_child(getppid()), gone_on) << "of another parent, as of one that is gone";
}

// Whatever this process has open and holds back.
TEST(ChildProcess, HasNoDescriptorsAndNoBlockedSignals) {
  const int open_here = dup(STDERR_FILENO);
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &before);
  const ChildOutput files = run_child({"ls", "/proc/self/fd"}, 10);
  const ChildOutput signals = run_child({"grep", "SigBlk", "/proc/self/status"}, 10);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  close(open_here);
  EXPECT_EQ(files.text, "0\n1\n2\n3\n");  // the last is the folder that ls reads
  EXPECT_EQ(signals.text, "SigBlk:\t0000000000000000\n");
}

TEST(ChildOutput, ReportsStatusTextAndTime) {
  const ChildOutput said = run_child({"sh", "-c", "echo out; echo err >&2; exit 3"}, 10);
  EXPECT_EQ(said.exit_status, 3);
  EXPECT_EQ(said.text, "out\nerr\n");
  EXPECT_FALSE(run_child({"nearmetal-no-such-program"}, 10).exit_status);
  for (const char* script : {"sleep 30", "exec >&- 2>&-; sleep 30"}) {
    const ChildOutput slow = run_child({"sh", "-c", script}, 0.2);
    EXPECT_TRUE(slow.timed_out) << script;
    EXPECT_FALSE(slow.exit_status);
  }
}

}  // namespace
}  // namespace nearmetal
