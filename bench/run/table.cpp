#include "bench/run/table.h"

#include <algorithm>

#include "base/text.h"
#include "base/text_table.h"
#include "bench/run/rank_exchange.h"
#include "models/probe.h"
#include "reports/document/metric.h"
#include "reports/document/run_config.h"
#include "reports/document/warning.h"
#include "reports/formats/run_tables.h"

namespace nearmetal {
namespace {

// "pipeline of 2 stages by 1f1b, 8 micro-batches"; of one "model parallel over 2 stages".
std::string pipeline_text(const RunConfig& config) {
  const std::string stages = counted(config.pipeline, "stage");
  if (config.micro_batches == 1) return "model parallel over " + stages;
  return "pipeline of " + stages + " by " + to_string(config.schedule) + ", " +
         std::to_string(config.micro_batches) + " micro-batches";
}

std::string time_text(double seconds) {
  return seconds < 1 ? significant(1e3 * seconds) + " ms" : significant(seconds) + " s";
}
std::string gigabytes(double bytes) { return significant(1e-9 * bytes, 3) + " GB"; }

std::string flops(double per_second) {
  return per_second >= 1e12 ? significant(1e-12 * per_second) + " TFLOP/s"
                            : significant(1e-9 * per_second) + " GFLOP/s";
}

// Two columns; colour for what matters.
struct Lines {
  std::ostream& out;
  bool colour;

  void line(const std::string& name, const std::string& text, const char* style = "") const {
    constexpr size_t name_columns = 17;
    const bool styled = colour && *style != '\0';
    const std::string shown = printable(text);
    const size_t limit = column_limit(out);
    std::string lead = "  " + name;
    lead.resize(name_columns, ' ');
    for (const std::string& part :
         limit == 0 ? std::vector{shown} : wrap_cell(shown, limit - name_columns)) {
      out << lead << (styled ? style : "") << part << (styled ? "\033[0m\n" : "\n");
      lead.assign(name_columns, ' ');
    }
  }
};

constexpr const char* bold = "\033[1m";
constexpr const char* red = "\033[31m";
constexpr const char* yellow = "\033[33m";

std::string workload(const RunConfig& config, const Run& run) {
  const std::string size = std::to_string(config.image_size);
  const std::string shape =
      config.sequence ? "sequence " + std::to_string(*config.sequence) : size + "x" + size;
  return config.model + " " + pass_name(config.forward_only, config.inference) + ", " +
         to_string(*config.precision) + ", batch " +
         (micro_batches_of(config) > 1 ? std::to_string(micro_batches_of(config)) + " x " : "") +
         std::to_string(config.batch.value_or(0)) +
         (replicas_of(config, run.world_size) == 1 ? ", "
          : config.pipeline > 1                    ? " a replica, "
                                                   : " a rank, ") +
         shape + " on " + run.device_name;
}

void print_step_time(const Lines& lines, const StepTime& time, int64_t steps) {
  std::string text = time_text(time.median_seconds) + " median, ";
  if (steps >= fewest_steps_for_p95) text += time_text(time.p95_seconds) + " p95, ";
  if (steps >= fewest_steps_for_p99) text += time_text(time.p99_seconds) + " p99, ";
  lines.line("step time",
             text + (steps < 2 ? "of one step" : "jitter " + time_text(time.jitter_seconds)));
  const Maybe<double>& error = time.relative_standard_error;
  lines.line("spread", !error ? "unknown: " + error.reason
                              : "standard error of the mean " + percent(*error, 2) + " (" +
                                    counted(steps, "step") + ", worth at most " +
                                    significant(*time.effective_steps, 3) + " independent ones)");
}

void print_window(const Lines& lines, const Run& run) {
  const TimedWindow& window = *run.window;
  const WarmUp& warm_up = *run.warm_up;
  const std::string steadiness = !warm_up.drift   ? "too few to tell whether steady"
                                 : warm_up.steady ? "steady"
                                                  : "not steady";
  lines.line("window", counted(window.steps, "step") + ", " + significant(window.seconds) +
                           " s, after " + std::to_string(window.first_step) + " warm-up steps (" +
                           steadiness + ")");
  if (run.flops_per_second) {
    lines.line("arithmetic",
               flops(*run.flops_per_second) +
                   (run.share_of_peak ? ", " + percent(*run.share_of_peak) + " of the peak of " +
                                            flops(*run.peak_flops_per_second)
                                      : ""));
  }
}

std::string change(const Maybe<double>& start, const Maybe<double>& end) {
  const auto text = [](const Maybe<double>& value) {
    return value ? significant(*value) : "unknown (" + value.reason + ")";
  };
  return text(start) + " at the start, " + text(end) + " at the end of the window";
}

void print_latency(const Lines& lines, const Latency& latency) {
  lines.line("latency",
             time_text(latency.median_seconds) + " median, " + time_text(latency.p95_seconds) +
                 " p95, " +
                 (latency.p99_seconds ? time_text(*latency.p99_seconds) + " p99, " : "") + "of " +
                 counted(latency.steps, "step") + " one at a time");
}

void print_proof(const Lines& lines, const Run& run, const RunConfig& config) {
  const Proof& proof = run.proof;
  if (proof.outputs_finite)
    lines.line("outputs", *proof.outputs_finite ? "finite" : "not finite, or all the same");
  if (config.inference) return;
  lines.line("loss", change(proof.window_start_loss, proof.window_end_loss));
  if (trains(config)) {
    lines.line("gradient norm",
               change(proof.window_start_gradient_norm, proof.window_end_gradient_norm));
  }
  if (!proof.verify) return;
  const Verify& verify = *proof.verify;
  const std::string last = verify.last_loss ? significant(*verify.last_loss) : "not finite";
  lines.line("verify", (verify.passed ? "passed: loss " : "FAILED: loss ") + last + " after " +
                           counted(verify.steps, "step") + " on " + std::to_string(verify.samples) +
                           " " + words_of(run.sample).plural +
                           " (bound: " + significant(verify.bound) + " within " +
                           std::to_string(verify.maximum_steps) + " steps)");
}

// The slowest of several ranks; equal steps are no news.
const Rank& slowest(const Run& run) {
  return *std::ranges::max_element(run.ranks, {}, [](const Rank& rank) {
    return rank.step_time ? rank.step_time->median_seconds : 0;
  });
}

// "ring ll128 on 24 channels, P2P/CUMEM": of the buckets one after another, each choice once.
std::string nccl_text(const NcclChoices& choices) {
  std::vector<std::string> texts;
  for (const SumChoice& sum : choices.sums) {
    const std::string operation = sum.operation == "allreduce" ? "" : sum.operation + " by ";
    add_new(texts, operation + sum.algorithm + " " + sum.protocol + " on " +
                       counted(sum.channels, "channel"));
  }
  texts.insert(texts.end(), choices.transports.begin(), choices.transports.end());
  return joined(texts);
}

void print_communication(const Lines& lines, const Communication& communication) {
  const double bytes = static_cast<double>(communication.bytes_per_step);
  std::vector<std::string> types;  // "fp16 and fp32"
  for (const Bucket& bucket : communication.buckets) {
    if (bucket.type) add_new(types, to_string(*bucket.type));
  }
  std::string text = gigabytes(bytes) + " of gradients per step" +
                     (types.empty() ? "" : " as " + joined(types, " and ")) + " in " +
                     counted(std::ssize(communication.buckets), "bucket") + ", ";
  if (communication.exposed_seconds_per_step) {
    text += time_text(*communication.exposed_seconds_per_step) + " of it exposed; ";
  }
  text += time_text(communication.buckets_seconds) + " with nothing else";
  // Other sums are told at the rate of a ring that takes as long.
  const bool is_of_a_ring =
      !communication.all_reduce || collective_for(communication.all_reduce, true).has_rate_of_ring;
  if (communication.least_seconds_per_step) {
    text += ", at least " + time_text(*communication.least_seconds_per_step) + " at the best " +
            gigabytes(*communication.best_bus_bandwidth_bytes_per_second) + "/s" +
            (is_of_a_ring ? " a link" : "");
  }
  lines.line("exchange", text + " (" + communication.library + ")");
  const std::string choice = choice_text(communication.tried_all_reduces);
  if (!choice.empty()) lines.line("", choice);
  if (communication.nccl) lines.line("", nccl_text(*communication.nccl));
}

void print_ranks(const Lines& lines, const Run& run, const RunConfig& config,
                 const std::vector<Environment>& environments) {
  const std::string hosts = environments.size() == 1
                                ? environments[0].host_name
                                : std::to_string(environments.size()) + " hosts";
  const char* averaged = "one network: gradients averaged every step";
  const std::string relation = exchanges_gradients(config, run.world_size) ? averaged
                               : config.pipeline > 1                       ? "one network"
                                                     : "independent of each other";
  lines.line("ranks", std::to_string(run.world_size) + " on " + hosts + ", " + relation);
  if (run.pipeline) {
    lines.line("stages", pipeline_text(config) + " (" + run.pipeline->library + ")");
    lines.line("bubble", bubble_text(run.pipeline->bubble));
  }
  if (run.communication) print_communication(lines, *run.communication);
  const auto& ways = run.ranks.front().mpi_transports;
  if (ways) lines.line("", "MPI by UCX: " + joined(*ways));
}

void print_memory_and_set_up(const Lines& lines, const Run& run) {
  double bytes = 0;
  const SetUp* longest = nullptr;
  for (const Rank& rank : run.ranks) {
    if (rank.device_bytes) bytes = std::max(bytes, static_cast<double>(*rank.device_bytes));
    const double seconds = rank.set_up ? rank.set_up->total_seconds : 0;
    if (rank.set_up && (!longest || seconds > longest->total_seconds)) longest = &*rank.set_up;
  }
  const DeviceWords& device = words_of(run.device);
  const char* place = run.ranks.size() > 1 ? device.each_memory : device.memory;
  if (bytes > 0) lines.line("memory", gigabytes(bytes) + " " + place);
  if (longest == nullptr) return;
  lines.line("set-up", significant(longest->total_seconds, 3) +
                           " s from process start to the end of the first step (" +
                           significant(longest->prepare_seconds, 3) + " s preparing)");
}

// For a cell; what took no time, or moved or computed nothing, has none.
std::string rate_text(double amount, double seconds, double scale) {
  return amount > 0 && seconds > 0 ? significant(scale * amount / seconds, 3) : "-";
}

void print_below(std::ostream& out, const char* title, const TextTable& table) {
  out << '\n';
  print_line(out, title);
  print_aligned(out, table);
}

}  // namespace

void print_summary(std::ostream& out, const Report& report, const Run& run, bool colour) {
  const RunConfig& config = report.invocation.config;
  const Lines lines{out, colour};
  print_line(out, workload(config, run));
  if (run.throughput) {
    lines.line("throughput", significant(*run.throughput, 5) + " " + words_of(run.sample).rate,
               bold);
  }
  if (run.world_size > 1) print_ranks(lines, run, config, report.environments);
  const Rank& rank = slowest(run);
  if (run.window && rank.step_time) print_step_time(lines, *rank.step_time, run.window->steps);
  if (run.window) print_window(lines, run);
  if (rank.latency) print_latency(lines, *rank.latency);
  if (run.window) print_proof(lines, run, config);
  if (const auto groups = std::ssize(run.digests); groups > 0) {
    lines.line("digest", groups == 1 ? "the same bits on all ranks"
                                     : counted(groups, "group") + " of ranks with other bits");
  }
  print_memory_and_set_up(lines, run);
  for (const Warning& warning : run.warnings)
    lines.line("warning", attributed_text(warning), yellow);
  if (run.status == Status::partial) lines.line("partial", run.failure.value_or(""), yellow);
  if (run.status == Status::failed) lines.line("failed", run.failure.value_or(""), red);
}

void print_profile(std::ostream& out, const StepProfile& profile) {
  TextTable table{.columns = {{"part"},
                              {"phase"},
                              {"ms", true},
                              {"% step", true},
                              {"floor ms", true},
                              {"TFLOP/s", true, true},
                              {"GB/s", true, true},
                              {"implementation"}}};
  const auto floor = [&](const ProfileEntry& entry) {
    if (!profile.roofline_seconds) return std::string("-");
    const Ceilings ceilings{*profile.copy_bytes_per_second, *profile.matrix_flops_per_second,
                            profile.cache_bytes.value_or(std::numeric_limits<double>::infinity())};
    const double seconds =
        std::min(entry.seconds, floor_seconds(entry.bytes, entry.flops, ceilings));
    return seconds > 0 ? fixed(1e3 * seconds, 3) : std::string("-");
  };
  for (const ProfileEntry& entry : profile.entries) {
    table.rows.push_back({entry.name, to_string(entry.phase), fixed(1e3 * entry.seconds, 3),
                          fixed(100 * entry.seconds / profile.step_seconds, 2), floor(entry),
                          rate_text(entry.flops, entry.seconds, 1e-12),
                          rate_text(entry.bytes, entry.seconds, 1e-9), entry.implementation});
  }
  print_below(out, "Where the step goes, each part timed alone", table);
  const Lines lines{out, false};
  lines.line("sum of parts", time_text(profile.sum_seconds) + ", " +
                                 percent(profile.sum_seconds / profile.step_seconds) +
                                 " of the median step of " + time_text(profile.step_seconds));
  if (profile.roofline_seconds) {
    lines.line("roofline",
               time_text(*profile.roofline_seconds) + ", " + percent(*profile.share_of_roofline) +
                   " of the step (ceilings: " + flops(*profile.matrix_flops_per_second) + " and " +
                   gigabytes(*profile.copy_bytes_per_second) + "/s)");
  } else {
    lines.line("roofline", "unknown: " + profile.roofline_seconds.reason);
  }
}

void print_probes(std::ostream& out, const RankProbes& probed) {
  TextTable table{.columns = {{"probe"},
                              {"median us", true},
                              {"mean us", true},
                              {"p99 us", true},
                              {"GB/s", true},
                              {"TFLOP/s", true},
                              {"one run"}}};
  for (const ProbeTime& probe : probed.probes) {
    const double seconds = probe.median_seconds ? *probe.median_seconds : 0;
    table.rows.push_back(
        {probe.name, significant_or_dash(probe.median_seconds, 1e6),
         significant_or_dash(probe.mean_seconds, 1e6), significant_or_dash(probe.p99_seconds, 1e6),
         rate_text(probe.bytes, seconds, 1e-9), rate_text(probe.flops, seconds, 1e-12),
         probe.median_seconds ? probe.work : probe.median_seconds.reason});
  }
  print_below(out, "Probes of this machine, timed right after the window", table);
}

}  // namespace nearmetal
