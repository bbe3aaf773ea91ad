#include "bench/run/attribute.h"

#include <algorithm>
#include <barrier>
#include <thread>

#include "bench/cli/process.h"
#include "bench/run/together.h"
#include "models/networks/registry.h"
#include "models/probe.h"
#include "reports/statistics/statistics.h"

namespace nearmetal {
namespace {

constexpr int64_t quantum_length = 100'000;  // short beside the slices of a scheduler
constexpr double quanta_seconds = 0.5;
constexpr double probe_seconds = 0.1;    // of one probe, unless its fewest runs take longer
constexpr double longest_seconds = 0.6;  // then one run must do
constexpr size_t fewest_runs = 3;
constexpr size_t most_runs = 200;
constexpr int queued_steps = 5;

std::vector<double> quanta_of_a_thread(double seconds) {
  std::vector<double> found;
  found.reserve(static_cast<size_t>(seconds / 1e-5));
  volatile uint64_t value = 1;
  const double start = steady_seconds();
  for (double begin = start; begin - start < seconds;) {
    value = multiply_in_a_chain(value, quantum_length);
    const double end = steady_seconds();
    found.push_back(end - begin);
    begin = end;
  }
  return found;
}

ProbeTime unknown_time(const std::string& name, const std::string& reason) {
  ProbeTime time;
  time.name = name;
  time.median_seconds = time.mean_seconds = time.p99_seconds = Unknown{reason};
  return time;
}

void fill_times(ProbeTime& time, const std::vector<double>& run_seconds) {
  time.runs = static_cast<int64_t>(run_seconds.size());
  time.median_seconds = median(run_seconds);
  time.mean_seconds = mean(run_seconds);
  time.p99_seconds = quantile(run_seconds, 0.99);
}

ProbeTime time_of(const Probe& probe) {
  ProbeTime time = unknown_time(probe.name, "");
  time.work = probe.work;
  time.bytes = probe.bytes;
  time.flops = probe.flops;
  try {
    const TimedRuns run = probe.start();
    std::vector<double> run_seconds;
    double spent = 0;
    const auto is_enough = [&] {
      const size_t runs = run_seconds.size();
      return spent >= (runs < fewest_runs ? longest_seconds : probe_seconds) || runs >= most_runs;
    };
    while (!is_enough()) {
      const double seconds = run(probe.runs_at_once);
      spent += seconds;
      run_seconds.push_back(seconds / static_cast<double>(probe.runs_at_once));
    }
    fill_times(time, run_seconds);
  } catch (const std::exception& error) {  // such as no memory left beside the program
    time.median_seconds = time.mean_seconds = time.p99_seconds = Unknown{message_of(error)};
  }
  return time;
}

// The times of the thread that got least.
ProbeTime time_cpus(int threads) {
  ProbeTime time = unknown_time(quantum_probe, "");
  time.work =
      "a hundred thousand dependent multiplications, by as many threads as compute at once (" +
      std::to_string(threads) + "); of the slowest";
  const std::vector<std::vector<double>> quanta = time_quanta(threads, quanta_seconds);
  fill_times(time, *std::ranges::max_element(quanta, {}, mean));
  return time;
}

// Until enqueue_step() returns: what the host does for a step, and nothing of the device.
ProbeTime time_queueing(Program& program) {
  ProbeTime time = unknown_time(queue_probe, "");
  time.work = "the host queues one step, with nothing else queued";
  std::vector<double> step_seconds;
  for (int step = 0; step < queued_steps; ++step) {
    const double begin = steady_seconds();
    program.enqueue_step();
    step_seconds.push_back(steady_seconds() - begin);
    program.wait_step();
  }
  fill_times(time, step_seconds);
  return time;
}

ProbeTime time_named(const RankTask& task, const std::vector<Probe>& probes,
                     const std::string& name) {
  if (task.context.stop != 0) return unknown_time(name, "it was interrupted");
  const auto found = std::ranges::find(probes, name, &Probe::name);
  return found == probes.end() ? unknown_time(name, "the backend has no such probe")
                               : time_of(*found);
}

// The time to the GPU of the next rank, where this rank sees it.
ProbeTime time_peer(const RankTask& task, const std::vector<Probe>& probes) {
  const int64_t gpus = task.device.backend.device_count();
  ProbeTime time = unknown_time("", "this rank sees no other GPU");
  if (gpus > 1) {
    time = time_named(task, probes,
                      "p2p/" + std::to_string(task.config().gpu) + "to" +
                          std::to_string((task.config().gpu + 1) % gpus));
  }
  time.name = "p2p/next";  // the same name on every rank
  return time;
}

std::vector<std::string> probe_names(const RunConfig& config) {
  const std::string product = std::string("product/") + to_string(*config.precision);
  if (config.device == Device::cpu) return {memory_probe, product};
  return {memory_probe,        product,         input_probe,   pageable_probe, "copy/d2h_pinned",
          "copy/d2h_pageable", "launch/kernel", "launch/graph"};
}

int computing_threads(const RunConfig& config) {
  if (config.device != Device::cpu) return 1;  // the thread that queues the work
  if (config.threads > 0) return static_cast<int>(config.threads);
  return static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
}

double rate_of(const RankProbes& probed, const std::string& name, double ProbeTime::*amount) {
  for (const ProbeTime& time : probed.probes) {
    if (time.name == name && time.median_seconds) return time.*amount / *time.median_seconds;
  }
  return 0;
}

StepNeeds needs_of(const RankTask& task, Program& program, const RankProbes& probed) {
  const RunConfig& config = task.config();
  StepNeeds needs;
  needs.launch =
      config.device == Device::cpu ? LaunchMode::call : config.launch.value_or(LaunchMode::graph);
  needs.input_pageable = config.input == Input::pageable;
  if (config.input != Input::device) {
    needs.input_bytes =
        static_cast<double>(step_samples(config) * task.device.graph.image().elements() *
                            element_bytes(*config.precision));
  }
  const std::string product = std::string("product/") + to_string(*config.precision);
  const Ceilings ceilings{rate_of(probed, memory_probe, &ProbeTime::bytes),
                          rate_of(probed, product, &ProbeTime::flops),
                          task.device.info.cache_bytes};
  const std::vector<Probe> kernels = program.probes();
  needs.kernels = static_cast<int64_t>(kernels.size());
  needs.memory_seconds = needs.compute_seconds =
      Unknown{"the rates of " + std::string(memory_probe) + " and " + product + " are not known"};
  if (ceilings.copy_bytes_per_second <= 0 || ceilings.matrix_flops_per_second <= 0) return needs;
  double by_bytes = 0, by_operations = 0;
  for (const Probe& kernel : kernels) {
    (bytes_bind(kernel.bytes, kernel.flops, ceilings) ? by_bytes : by_operations) +=
        floor_seconds(kernel.bytes, kernel.flops, ceilings);
  }
  needs.memory_seconds = by_bytes;
  needs.compute_seconds = by_operations;
  return needs;
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
  others.reserve(threads);
  try {
    for (int thread = 1; thread < threads; ++thread) others.emplace_back(work, thread);
  } catch (...) {  // those that have begun wait for no others
    for (int thread = std::ssize(others); thread < threads; ++thread) ready.arrive_and_drop();
    throw;
  }
  work(0);
  others.clear();  // waits for them
  return found;
}

RankProbes time_machine(const RankTask& task, Program& program) {
  maximum_of_ranks(task.world, 0);  // ranks share links and CPUs: all probe at the same time
  RankProbes probed;
  probed.probes.push_back(time_cpus(computing_threads(task.config())));
  const std::vector<Probe> probes = task.device.backend.probes(static_cast<int>(task.config().gpu));
  for (const std::string& name : probe_names(task.config())) {
    probed.probes.push_back(time_named(task, probes, name));
  }
  if (task.config().device != Device::cpu) {
    if (task.world.size() > 1) probed.probes.push_back(time_peer(task, probes));
    maximum_of_ranks(task.world, 0);
    probed.probes.push_back(
        task.config().input == Input::pageable
            ? unknown_time(queue_probe,
                           std::string("copying pageable ") +
                               words_of(find_network(task.config().model).sample).plural +
                               " is part of it")
            : time_queueing(program));
  }
  probed.needs = needs_of(task, program, probed);
  return probed;
}

}  // namespace nearmetal
