#include "bench/micro/probes.h"

#include "base/text_table.h"
#include "models/load_module.h"

namespace nearmetal {

std::vector<std::string> time_probes(const std::vector<Probe>& probes, const TimingOptions& options,
                                     TimingForm form, std::ostream& out) {
  void* entry = load_module("micro", "module of micro", timing_entry_name);
  std::vector<std::string> failures;
  reinterpret_cast<TimingEntry>(entry)(probes, options, form, out, column_limit(out), failures);
  return failures;
}

}  // namespace nearmetal
