// A shell that clears up after this process, however that ends.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "bench/environment/child_process.h"

namespace nearmetal {

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
