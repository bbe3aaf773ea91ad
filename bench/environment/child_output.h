// Runs a short command and takes what it prints.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

namespace nearmetal {

struct ChildOutput {
  std::optional<int> exit_status;  // none: it did not start, was killed, or took too long
  bool timed_out = false;
  std::string text;  // of both streams, at most 64 KiB
};

/// Whether there is a program of that name on PATH.
bool is_on_path(const std::string& program);

/// For a child right after fork(): sends it `signal` when the parent, whose id this was before the
/// fork, ends; does not return where it has ended already.
void end_with_parent(pid_t parent, int signal);

/// `arguments` begin with the program, looked for on PATH; no shell reads them. The command has no
/// input, and is killed with its whole process group after `seconds`.
ChildOutput run_child(const std::vector<std::string>& arguments, double seconds);

}  // namespace nearmetal
