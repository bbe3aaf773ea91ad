#include "reports/document/throughput.h"

namespace nearmetal {

double throughput_of(double samples, double seconds) { return samples / seconds; }

double throughput_of(const TimedWindow& window) {
  return throughput_of(static_cast<double>(window.samples), window.seconds);
}

void set_throughput(const Maybe<double>& throughput, Run& run) {
  run.throughput = throughput;
  run.flops_per_second = run.share_of_peak = Unknown{throughput.reason};
  if (!throughput) return;
  run.flops_per_second = *throughput * run.flops_per_sample;
  run.share_of_peak = Unknown{run.peak_flops_per_second.reason};
  if (!run.peak_flops_per_second) return;
  run.share_of_peak = *run.flops_per_second / *run.peak_flops_per_second;
}

void fail_run(const std::string& why, Run& run) {
  run.status = Status::failed;
  run.failure = why;
  set_throughput(Unknown{"the run failed"}, run);
}

}  // namespace nearmetal
