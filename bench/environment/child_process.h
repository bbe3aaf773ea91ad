// Starts other programs: the one place where this process makes another.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "base/descriptor.h"

namespace nearmetal {

struct Pipe {
  /// Throws std::system_error.
  Pipe();
  Descriptor read, write;
};

struct ChildOptions {
  std::vector<std::string> variables{};  // NAME=VALUE, beside or in place of those of this process
  int in = -1;                           // descriptors; -1: nothing to read,
  int out = -1, err = -1;                // and those of this process
  int kept = -1;                         // a further descriptor that it gets; -1: none
  int signal_at_our_end = 0;             // sent to it when this thread ends; 0: none
  bool own_session = false;              // else a process group of its own: Ctrl-C is for this one
};

/// Starts a program, looked for on PATH, with its arguments; no shell reads them. It has no other
/// descriptors than those of the options, no signal blocked, and those that this process ignores
/// as usual. Returns its process id once it runs. Throws std::system_error, "NAME cannot be
/// started: ...".
pid_t start_child(const std::vector<std::string>& arguments, const ChildOptions& options = {});

/// Kills a child with its whole process group, and the session that it may have of its own; returns
/// its status.
int kill_child(pid_t child);

/// Kills what is left of the session that a child had of its own, in whatever process groups and
/// whoever the parents are now: the ranks of a launcher that was killed, and its remote shells.
void kill_session(pid_t child);

/// For a child right after fork(): sends it `signal` when the parent, whose id this was before the
/// fork, ends; does not return where it has ended already.
void end_with_parent(pid_t parent, int signal);

struct ChildOutput {
  std::optional<int> exit_status;  // none: it did not start, was killed, or took too long
  bool timed_out = false;
  std::string text;  // at most 64 MiB
};

/// Runs a short command and takes what it prints, to both streams unless `options` have a place for
/// its errors. It is killed with its whole process group after `seconds`. Throws std::system_error
/// where no process can be started at all.
ChildOutput run_child(const std::vector<std::string>& arguments, double seconds,
                      ChildOptions options = {});

/// Whether there is a program of that name on PATH.
bool is_on_path(const std::string& program);

/// A shell that clears up after this process, however that ends.
class Keeper {
 public:
  /// Starts `script` in a session of its own, so that no Ctrl-C reaches it, with these as "$1" and
  /// so on. Its standard input ends with this object, and with the process. Throws
  /// std::system_error.
  Keeper(const char* script, const std::vector<std::string>& arguments);
  ~Keeper() { finish(); }
  Keeper(const Keeper&) = delete;
  Keeper& operator=(const Keeper&) = delete;

  /// Ends its standard input, and waits for what it does then.
  void finish();
  /// Ends its standard input; what it does then may outlast this process.
  void leave();
  /// Ends it before it does anything.
  void dismiss();
  /// A process that inherits this keeps its standard input open, too.
  int lifeline() const { return lifeline_.number(); }

 private:
  Descriptor lifeline_;
  pid_t pid_ = -1;
};

}  // namespace nearmetal
