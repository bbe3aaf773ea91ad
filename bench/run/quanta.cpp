#include "bench/run/quanta.h"

#include <barrier>
#include <chrono>
#include <cstdint>
#include <thread>

namespace nearmetal {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t quantum_length = 100'000;  // short beside the slices of a scheduler

std::vector<double> quanta_of_a_thread(double seconds) {
  std::vector<double> found;
  found.reserve(static_cast<size_t>(seconds / 1e-5));
  volatile uint64_t value = 1;
  const Clock::time_point start = Clock::now();
  const auto since = [](Clock::time_point begin, Clock::time_point end) {
    return std::chrono::duration<double>(end - begin).count();
  };
  for (Clock::time_point begin = start; since(start, begin) < seconds;) {
    value = multiply_in_a_chain(value, quantum_length);
    const Clock::time_point end = Clock::now();
    found.push_back(since(begin, end));
    begin = end;
  }
  return found;
}

}  // namespace

std::vector<std::vector<double>> time_quanta(int threads, double seconds) {
  std::vector<std::vector<double>> found(threads);
  std::barrier ready(threads);
  const auto work = [&](int thread) {
    ready.arrive_and_wait();
    found[thread] = quanta_of_a_thread(seconds);
  };
  std::vector<std::jthread> others;
  for (int thread = 1; thread < threads; ++thread) others.emplace_back(work, thread);
  work(0);
  others.clear();  // waits for them
  return found;
}

}  // namespace nearmetal
