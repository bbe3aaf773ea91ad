#include "bench/run/probes_table.h"

#include <string>

#include "reports/text/fit_table.h"
#include "reports/text/text.h"
#include "reports/text/text_table.h"

namespace nearmetal {

void print_probes(std::ostream& out, const RankProbes& probed) {
  TextTable table;
  table.columns = {{"probe"},      {"median us", true}, {"mean us", true}, {"p99 us", true},
                   {"GB/s", true}, {"TFLOP/s", true},   {"one run"}};
  const auto microseconds = [](const Maybe<double>& seconds) {
    return seconds ? significant(1e6 * *seconds) : std::string("-");
  };
  for (const ProbeTime& probe : probed.probes) {
    const auto rate = [&](double amount, double scale) {
      return probe.median_seconds && amount > 0
                 ? significant(scale * amount / *probe.median_seconds, 3)
                 : std::string("-");
    };
    table.rows.push_back({probe.name, microseconds(probe.median_seconds),
                          microseconds(probe.mean_seconds), microseconds(probe.p99_seconds),
                          rate(probe.bytes, 1e-9), rate(probe.flops, 1e-12),
                          probe.median_seconds ? probe.work : probe.median_seconds.reason});
  }
  out << '\n';
  print_line(out, "Probes of this machine, timed right after the window");
  print_aligned(out, table);
}

}  // namespace nearmetal
