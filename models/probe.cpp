#include "models/probe.h"

#include <chrono>
#include <iterator>
#include <utility>

namespace nearmetal {

std::string step_probe_name(const std::string& phase, std::string nodes) {
  std::erase(nodes, ' ');
  return "step/" + phase + "/" + nodes;
}

std::string exchange_probe_name(const std::string& library, const std::string& work,
                                int64_t bytes) {
  const std::string size = bytes >= 1 << 20   ? std::to_string(bytes >> 20) + "MiB"
                           : bytes >= 1 << 10 ? std::to_string(bytes >> 10) + "KiB"
                                              : std::to_string(bytes) + "B";
  return library + "/" + work + "/" + size;
}

double steady_seconds() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

double median_of(std::vector<double> values) {
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

double median_seconds(const Probe& probe, int repeats) {
  const TimedRuns run = probe.start();
  std::vector<double> seconds;
  for (int i = 0; i < repeats; ++i) seconds.push_back(run(1));
  return median_of(std::move(seconds));
}

}  // namespace nearmetal
