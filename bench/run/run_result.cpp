#include "bench/run/run_result.h"

#include "bench/run/table.h"

namespace nearmetal {
namespace {

void print_result(std::ostream& out, const Report& report, bool colour) {
  const Run& run = report.arms.front().runs.front();
  print_summary(out, report, run, colour);
  if (run.profile) print_profile(out, *run.profile);
  if (!run.ranks.empty() && run.ranks[0].probes) print_probes(out, *run.ranks[0].probes);
}

}  // namespace

// The table comes after the file is safe; where it is not, the table is all that is left.
void publish(const Report& report, const Destination& destination, const Terminal& terminal) {
  try {
    write_report(report, destination, terminal);
  } catch (...) {
    print_result(terminal.err, report, false);
    throw;
  }
  if (!destination.to_stdout) print_result(terminal.out, report, terminal.colour);
  if (destination.file) terminal.remark("report: " + destination.file->string());
}

void tell_result(const Report& report, Teller& teller) {
  Event event;
  event.kind = EventKind::result;
  event.report = report;
  teller.tell(event);
}

void tell_failure(const Run& run, const Terminal& terminal) {
  if (run.status != Status::complete) {
    terminal.err << "nearmetal: the run is " << to_string(run.status) << ": "
                 << run.failure.value_or("") << std::endl;
  }
}

}  // namespace nearmetal
