#include "bench/run/conductor.h"

#include <poll.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <limits>

namespace nearmetal {

double unix_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

Conductor::Conductor(Teller& teller, int orders)
    : teller_(teller),
      orders_(orders),
      start_unix_seconds_(std::numeric_limits<double>::infinity()),
      listener_([this] { listen(); }) {}

Conductor::~Conductor() {
  over_ = true;
  listener_.join();
}

bool Conductor::may_open_window() const { return unix_seconds() >= start_unix_seconds_.load(); }

void Conductor::obey(const std::string& line) {
  const std::string start = std::string(start_order) + " ";
  if (line.starts_with(start)) {
    start_unix_seconds_ = std::strtod(line.c_str() + start.size(), nullptr);
  } else if (line == end_order) {
    may_end_ = true;
  } else if (line == stop_order) {
    must_stop_ = true;
  }
}

// A sweep that is gone cannot want the job any more.
void Conductor::listen() {
  std::string text;
  std::array<char, 256> bytes{};
  while (!over_) {
    pollfd waiting{orders_, POLLIN, 0};
    if (poll(&waiting, 1, poll_milliseconds) <= 0) continue;
    const ssize_t count = read(orders_, bytes.data(), bytes.size());
    if (count <= 0) {
      must_stop_ = !may_end_;
      return;
    }
    text.append(bytes.data(), count);
    for (size_t end = text.find('\n'); end != std::string::npos; end = text.find('\n')) {
      obey(text.substr(0, end));
      text.erase(0, end + 1);
    }
  }
}

Wish ConductedConsensus::agree(Wish mine) {
  if (mine.ready && !told_) {
    Event event;
    event.kind = in_window_ ? EventKind::measured : EventKind::ready;
    conductor_.teller().tell(event);
    told_ = true;
  }
  mine.ready = mine.ready && (in_window_ ? conductor_.may_end() : conductor_.may_open_window());
  mine.stop = mine.stop || conductor_.must_stop();
  const Wish agreed = inner_.agree(mine);
  if (agreed.ready) {
    in_window_ = true;
    told_ = false;
  }
  return agreed;
}

}  // namespace nearmetal
