#include "bench/tf_cnn_benchmarks/print.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "base/errors.h"
#include "base/text.h"
#include "base/text_table.h"
#include "bench/tf_cnn_benchmarks/translate.h"
#include "reports/compare/work_text.h"
#include "reports/document/metric.h"
#include "reports/statistics/statistics.h"

namespace nearmetal {
namespace {

constexpr size_t rule_length = 64;

void print_entry(std::ostream& out, const std::string& name, const std::string& value) {
  constexpr size_t name_columns = 13;
  const std::string label = name.empty() ? "" : name + ":";
  out << label << std::string(std::max(label.size() + 1, name_columns) - label.size(), ' ')
      << printable(value) << '\n';
}

std::string data_of(const SetRun& run) {
  const std::string sequence = key_value(run, "sequence");
  if (!sequence.empty()) return "sequences of " + sequence + " tokens (synthetic)";
  const std::string size = key_value(run, "image_size"), classes = key_value(run, "classes");
  const bool imagenet = size == "224" && (classes == "1000" || classes == "1001");
  return (imagenet ? "imagenet" : size + "x" + size + ", " + classes + " classes") + " (synthetic)";
}

std::string devices_of(const Run& run) {
  const std::string kind = run.device == Device::cuda ? "gpu" : "cpu";
  std::vector<std::string> devices;
  for (int64_t i = 0; i < run.world_size; ++i) {
    devices.push_back("'/" + kind + ":" + std::to_string(i) + "'");
  }
  return "[" + joined(devices) + "]";
}

bool is_bound(const Run& run) {
  return std::ranges::any_of(run.ranks, [](const Rank& rank) {
    return rank.binding && rank.binding->numa_node.value.has_value();
  });
}

bool trains(const SetRun& run) {
  return key_value(run, "inference") != "yes" && key_value(run, "forward_only") != "yes";
}

const char* mode_of(const SetRun& run) {
  if (trains(run)) return "training";
  return key_value(run, "inference") == "yes" ? "forward-only"
                                              : "forward-only, with norms as in training";
}

// Without an update there is none.
const char* optimizer_of(const SetRun& run) {
  if (!trains(run)) return "none";
  if (key_value(run, "optimizer") == "adamw") return "adamw";
  return key_value(run, "momentum") == "0" ? "sgd" : "momentum";
}

// `arm`: empty where there is one alone.
void print_header(std::ostream& out, const SetRun& set_run, const std::string& arm) {
  const Run& run = set_run.run;
  const std::string batch = key_value(set_run, "batch");
  const double global = std::strtod(batch.c_str(), nullptr) * static_cast<double>(run.world_size);
  const int64_t taken = run.window ? run.window->steps : 0;
  const int64_t steps = set_run.asked_steps.value_or(taken);
  print_entry(out, "nearmetal", set_run.tool.version);
  if (!arm.empty()) print_entry(out, "Arm", arm);
  print_entry(out, "Model", tf_model_name(key_value(set_run, "model")));
  print_entry(out, "Dataset", data_of(set_run));
  print_entry(out, "Mode", mode_of(set_run));
  print_entry(out, "Batch size", fixed(global, 0) + " global");
  print_entry(out, "", batch + " per device");
  print_entry(out, "Num batches", std::to_string(steps));
  const double images = static_cast<double>(steps) * global;
  print_entry(out, "Num epochs", fixed(images / imagenet_images, 2));
  print_entry(out, "Devices", devices_of(run));
  print_entry(out, "NUMA bind", is_bound(run) ? "True" : "False");
  print_entry(out, "Data format", "NHWC");
  print_entry(out, "Optimizer", optimizer_of(set_run));
  const bool independent = key_value(set_run, "update") == "independent";
  print_entry(out, "Variables", independent ? "independent" : "replicated");
  if (run.communication) print_entry(out, "AllReduce", run.communication->library);
  out << "==========\n";
}

// The steps of the timed window, as far as all ranks have it.
struct RunSteps {
  std::vector<double> speeds;  // images/s
  std::vector<double> losses;
};

RunSteps steps_of(const SetRun& set_run) {
  const Run& run = set_run.run;
  RunSteps steps;
  if (!run.window || run.ranks.empty()) return steps;
  const double batch = std::strtod(key_value(set_run, "batch").c_str(), nullptr);
  const bool in_step = run.communication.has_value();
  const auto ranks = static_cast<double>(run.ranks.size());
  for (int64_t i = 0; i < run.window->steps; ++i) {
    const auto step = static_cast<size_t>(run.window->first_step + i);
    double slowest = 0, sum_of_speeds = 0, sum_of_losses = 0;
    for (const Rank& rank : run.ranks) {
      if (step >= rank.step_seconds.size()) return steps;
      if (step >= rank.loss.size() && !rank.loss.empty()) return steps;
      slowest = std::max(slowest, rank.step_seconds[step]);
      sum_of_speeds += batch / rank.step_seconds[step];
      if (!rank.loss.empty()) sum_of_losses += rank.loss[step];  // inference has none: 0, as there
    }
    steps.speeds.push_back(in_step ? ranks * batch / slowest : sum_of_speeds);
    steps.losses.push_back(sum_of_losses / ranks);
  }
  return steps;
}

// The speed as get_perf_timing() gives it there: the mean is that of step times, the error of
// single speeds.
std::string speed_text(std::span<const double> speeds) {
  double seconds_of_an_image = 0, squares = 0;
  const double average = mean(speeds);
  for (const double speed : speeds) {
    seconds_of_an_image += 1 / speed;
    squares += (speed - average) * (speed - average);
  }
  const auto count = static_cast<double>(speeds.size());
  return "images/sec: " + fixed(count / seconds_of_an_image, 1) + " +/- " +
         fixed(std::sqrt(squares) / count, 1) + " (jitter = " + fixed(robust_deviation(speeds), 1) +
         ")";
}

void print_steps(std::ostream& out, const RunSteps& steps, size_t every) {
  out << "Step\tImg/sec\tbase_loss\n";
  for (size_t count = 1; count <= steps.speeds.size(); ++count) {
    if (count > 1 && count % every != 0) continue;
    out << count << '\t' << speed_text(std::span(steps.speeds).first(count)) << '\t'
        << fixed(steps.losses[count - 1], 3) << '\n';
  }
}

void print_run(std::ostream& out, const SetRun& set_run, const std::string& arm) {
  const Run& run = set_run.run;
  if (!run.jobs.empty()) {
    throw NotComparable("--format tf_cnn_benchmarks is of one job, and " + set_run.source +
                        " holds runs of several at once");
  }
  print_header(out, set_run, arm);
  if (run.warm_up) out << "Running warm up\nDone warm up\n";
  print_steps(out, steps_of(set_run), static_cast<size_t>(display_every_of(set_run.argv)));
  if (run.status != Status::complete || !run.throughput) return;
  const std::string rule(rule_length, '-');
  out << rule << "\ntotal images/sec: " << fixed(*run.throughput, 2) << '\n' << rule << '\n';
}

}  // namespace

void print_tf_cnn_benchmarks(std::ostream& out, const RunSet& set) {
  const bool several =
      std::ranges::count_if(set.arms, [](const RunArm& arm) { return !arm.runs.empty(); }) > 1;
  for (const RunArm& arm : set.arms) {
    for (const SetRun& run : arm.runs) print_run(out, run, several ? arm.name : "");
  }
}

}  // namespace nearmetal
