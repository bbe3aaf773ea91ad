#include "bench/interrupt.h"

#include <signal.h>
#include <unistd.h>

namespace nearmetal {

std::atomic<int> stop_signal = 0;

namespace {

void on_signal(int signal) {
  stop_signal.store(signal);
  constexpr char text[] = "\nstopping after this step; once more stops at once\n";
  // Only what is safe in a signal handler; a message that does not get out is no loss.
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text, sizeof text - 1);
}

}  // namespace

void catch_stop_signals() {
  static_assert(std::atomic<int>::is_always_lock_free);
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = static_cast<int>(SA_RESETHAND | SA_RESTART);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

}  // namespace nearmetal
