#include "bench/cli/interrupt.h"

#include <signal.h>
#include <unistd.h>

#include <thread>

namespace nearmetal {

std::atomic<int> stop_signal = 0;

void catch_stop_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  // A thread waits for them, all others block them: generated code of libraries may use the stack
  // pointer for other things, so that a handler on top of it would write where it must not.
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::thread([signals] {
    int signal = 0;
    if (sigwait(&signals, &signal) != 0) return;
    stop_signal.store(signal);
    constexpr char text[] = "\nstopping after this step; once more stops at once\n";
    // A message that does not get out is no loss.
    [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text, sizeof text - 1);
    pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);  // the next one does what it always does
    while (true) pause();
  }).detach();
}

}  // namespace nearmetal
