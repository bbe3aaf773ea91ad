#include "bench/environment/child_output.h"

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

TEST(ChildOutput, AChildWhoseParentHasEndedMeanwhileEnds) {
  EXPECT_EQ(status_of_child(getpid()), gone_on);
  EXPECT_NE(status_of_child(getppid()), gone_on) << "of another parent, as of one that is gone";
}

}  // namespace
}  // namespace nearmetal
