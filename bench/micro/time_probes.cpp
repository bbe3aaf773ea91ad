// The module by which Google Benchmark times probes: its library needs a newer C++ library than the
// rest of the program.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/text.h"
#include "base/text_table.h"
#include "bench/micro/probes.h"
#include "models/load_module.h"
#include "reports/statistics/statistics.h"

namespace nearmetal {
namespace {

namespace gb = ::benchmark;

// Names of counters: those of the JSON form.
constexpr const char* median_microseconds = "median_microseconds";
constexpr const char* p99_microseconds = "p99_microseconds";
constexpr const char* bytes_rate = "bytes_per_second";
constexpr const char* bus_rate = "bus_bytes_per_second";
constexpr const char* flops_rate = "flops_per_second";
constexpr const char* floor_share = "share_of_floor";

// Why a run has no figures. Google Benchmark renamed the members that hold it in version 1.8.
template <class Run>
std::optional<std::string> failure_of(const Run& run) {
  if constexpr (requires { run.error_occurred; }) {
    if (run.error_occurred) return run.error_message;
  } else {
    if (run.skipped != decltype(run.skipped){}) return run.skip_message;
  }
  return std::nullopt;
}

// Fewer runs of what takes long; all ranks decide the same.
int64_t collective_batches(const Probe& probe) {
  return probe.bytes <= 1 << 16 ? 1000 / probe.runs_at_once : 1 + 40 / probe.runs_at_once;
}

void count(gb::State& state, const Probe& probe, const Ceilings& ceilings,
           const std::vector<double>& run_seconds) {
  // Not the mean, which one run that the host interrupted may double.
  const double seconds = median(run_seconds);
  state.counters[median_microseconds] = 1e6 * seconds;
  state.counters[p99_microseconds] = 1e6 * quantile(run_seconds, 0.99);
  if (probe.bytes > 0) state.counters[bytes_rate] = probe.bytes / seconds;
  if (probe.bus_factor > 0) {
    state.counters[bus_rate] = probe.bus_factor * probe.bytes / seconds;
  }
  if (probe.flops > 0) state.counters[flops_rate] = probe.flops / seconds;
  if (ceilings.copy_bytes_per_second > 0 && ceilings.matrix_flops_per_second > 0) {
    const double floor = floor_seconds(probe.bytes, probe.flops, ceilings);
    if (floor > 0) state.counters[floor_share] = floor / seconds;
  }
}

struct Stopped {};  // thrown through the library, which has shown what came before

// Started once for all repetitions; let go of when the next probe starts, as memory is short.
class Bench {
 public:
  Bench(const TimingOptions& options, std::vector<std::string>& failures)
      : options_(options), failures_(failures) {}

  void run(gb::State& state, const Probe& probe) {
    try {
      if (started_ != &probe) {
        runs_ = nullptr;
        runs_ = probe.start();
        started_ = &probe;
      }
      std::vector<double> run_seconds;
      while (state.KeepRunningBatch(probe.runs_at_once)) {
        if (options_.stop != nullptr && *options_.stop != 0) throw Stopped{};
        const double seconds = runs_(probe.runs_at_once);
        state.SetIterationTime(seconds);
        run_seconds.push_back(seconds / static_cast<double>(probe.runs_at_once));
      }
      if (!run_seconds.empty()) count(state, probe, options_.ceilings, run_seconds);
    } catch (const std::exception& error) {
      if (options_.collective) throw;  // the other ranks are still in it
      state.SkipWithError(error.what());
      if (failed_ != &probe) failures_.push_back(probe.name + ": " + error.what());
      failed_ = &probe;
    }
    state.SetLabel(probe.work);
  }

 private:
  const TimingOptions& options_;
  std::vector<std::string>& failures_;  // the first of each probe
  const Probe* started_ = nullptr;
  const Probe* failed_ = nullptr;
  TimedRuns runs_;
};

double counter(const gb::BenchmarkReporter::Run& run, const char* name) {
  const auto found = run.counters.find(name);
  return found == run.counters.end() ? 0 : found->second.value;
}

// The table before its numbers are known: these take nine columns at most. Columns that no probe
// here has, and what `--list` shows, give way where room is short.
TextTable table_of(const std::vector<Probe>& probes, const Ceilings& ceilings) {
  const auto none = [&](auto Probe::*amount) {
    return std::ranges::all_of(probes, [&](const Probe& probe) { return probe.*amount <= 0; });
  };
  TextTable table;
  table.columns = {{"probe"},
                   {"median us", true},
                   {"p99 us", true},
                   {"GB/s", true, none(&Probe::bytes)},
                   {"bus GB/s", true, none(&Probe::bus_factor)},
                   {"TFLOP/s", true, none(&Probe::flops)},
                   {"floor / time", true, ceilings.copy_bytes_per_second <= 0},
                   {"one run", false, true}};
  const auto number = [](size_t columns) { return std::string(columns, '9'); };
  for (const Probe& probe : probes) {
    table.rows.push_back(
        {probe.name, number(9), number(9), number(7), number(8), number(7), number(8), probe.work});
  }
  return table;
}

// One row per probe: medians of the repetitions.
class TableReporter : public gb::BenchmarkReporter {
 public:
  TableReporter(std::ostream& out, const TextTable& table) : rows_(out, table) {}

  bool ReportContext(const Context& /*context*/) override {
    rows_.print_titles();
    return true;
  }

  void ReportRuns(const std::vector<Run>& report) override {
    std::vector<Run> runs;
    std::ranges::copy_if(report, std::back_inserter(runs),
                         [](const Run& run) { return run.run_type == Run::RT_Iteration; });
    if (runs.empty()) return;
    const Run& first = runs.front();
    if (const auto failure = failure_of(first)) {
      rows_.print({first.run_name.function_name, "failed", "", "", "", "", "", *failure});
      return;
    }
    const auto shown = [&](const char* name, double scale, const char* unit = "") {
      const double value =
          median(transformed(runs, [&](const Run& run) { return counter(run, name); }));
      return value > 0 ? significant(scale * value) + unit : std::string("-");
    };
    rows_.print({first.run_name.function_name, shown(median_microseconds, 1),
                 shown(p99_microseconds, 1), shown(bytes_rate, 1e-9), shown(bus_rate, 1e-9),
                 shown(flops_rate, 1e-12), shown(floor_share, 100, " %"), first.report_label});
  }

 private:
  TableRows rows_;
};

class ShowNothing : public gb::BenchmarkReporter {
 public:
  bool ReportContext(const Context& /*context*/) override { return true; }
  void ReportRuns(const std::vector<Run>& /*report*/) override {}
};

std::unique_ptr<gb::BenchmarkReporter> make_reporter(TimingForm form, std::ostream& out,
                                                     const TextTable& table) {
  if (form == TimingForm::json) return std::make_unique<gb::JSONReporter>();
  if (form == TimingForm::none) return std::make_unique<ShowNothing>();
  return std::make_unique<TableReporter>(out, table);
}

}  // namespace

NM_EXPORT void nearmetal_time_probes(const std::vector<Probe>& probes, const TimingOptions& options,
                                     TimingForm form, std::ostream& out, size_t columns,
                                     std::vector<std::string>& failures) {
  if (columns > 0) limit_columns(out, columns);  // what this module knows of a stream is its own
  Bench bench(options, failures);
  gb::ClearRegisteredBenchmarks();
  for (const Probe& probe : probes) {
    auto* registered = gb::RegisterBenchmark(
        probe.name.c_str(), [&bench, &probe](gb::State& state) { bench.run(state, probe); });
    registered->UseManualTime()->Unit(gb::kMicrosecond)->Repetitions(options.repetitions);
    if (options.collective) {
      registered->Iterations(probe.runs_at_once * collective_batches(probe));
    } else {
      registered->MinTime(options.seconds);
    }
  }
  const auto shown = make_reporter(form, out, table_of(probes, options.ceilings));
  shown->SetOutputStream(&out);
  shown->SetErrorStream(&out);
  out.setf(std::ios::unitbuf);
  try {
    gb::RunSpecifiedBenchmarks(shown.get(), ".");
  } catch (const Stopped&) {
    shown->Finalize();
  }
  gb::ClearRegisteredBenchmarks();
}

}  // namespace nearmetal
