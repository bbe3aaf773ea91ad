#include "bench/commands/layout_options.h"

#include <algorithm>
#include <stdexcept>
#include <vector>

#include "bench/cli/parse_value.h"
#include "bench/sweep/layout_workload.h"
#include "bench/sweep/shipped_layouts.h"
#include "comm/layout/layout.h"

namespace nearmetal {

const char* const short_form_text = R"(
Layouts in short: nodes x VMs per node x GPUs per VM, K*(...) for K such jobs at once, + for others:
  1x1x2 is one job on two GPUs, 2*(1x1x1) are two on one each. Without any: 1, 2, 4, ... all GPUs.
  Several VMs on one node are emulated (kind emulated): parts of the host without P2P or shared
  memory between them. Real VMs are hosts; a layout file can say which share a node.
  A layout file or hostfile is a path with a / or a suffix: plain is no file, ./plain is one.

Each rank reads and writes the files of --plans, --plan-cache and --host-facts itself, so that each
host needs them under the same path. --plans is also read here: a layout takes the plans of the arm
that did the same work, or, if several did, of the one with its name. --plans is refused (exit 2)
if no arm did that work, if --batch has no number, and if the jobs of a layout have shares of
different sizes, as plans hold for one size.
)";

std::string plain_text(const std::string& flag, const std::string& text) {
  if (is_plain_text(text)) return text;
  throw std::invalid_argument(flag + " does not take '" + text + "'");
}

// A list of choices, each of which is one layout or more.
template <class T>
void require_distinct(const std::string& flag, const std::string& text, std::vector<T> choices) {
  std::ranges::sort(choices);
  if (std::ranges::adjacent_find(choices) == choices.end()) return;
  throw std::invalid_argument(flag + " " + text + " names one twice");
}

void add_layout_options(Options& options, PlanRequest& request) {
  options
      .paths("LAYOUT", "LAYOUT...", request.layouts,
             "layout file, name of a shipped one, or layouts in short")
      .words = shipped_layouts;
  options.value("--hosts", "LIST|FILE",
                "NAME:GPUS,..., hostfile of mpirun, or COUNT*GPUS [this one]",
                [&](const std::string& text) { request.hosts = plain_text("--hosts", text); });
  options
      .value("--device", "", "",
             [](const std::string&) {
               throw std::invalid_argument(
                   "--device: a layout's hosts decide; --hosts localhost:0 trains on the CPUs");
             })
      .hidden = true;
  options.number("--fractions", "JOBS", request.fractions, {2, 64},
                 "jobs that share one GPU, in every way [batch on GPUs: 64]");
  options.repeated("--grid", "NAME=VALUE,...",
                   "run each layout with each value; repeated: each combination",
                   [&](const std::vector<std::string>& texts) {
                     for (const std::string& text : texts) {
                       request.grid.push_back(grid_axis_from(text));
                     }
                   });
  options.value("--batches", "N,N,...", "the same as --grid batch=N,N,...",
                [&](const std::string& text) {
                  request.grid.push_back({"batch", comma_separated(text), "--batches"});
                });
  const auto take_neighbours = [&](const std::string& text) {
    request.neighbours.clear();
    for (const std::string& load : comma_separated(text)) {
      request.neighbours.push_back(parse_choice<NeighbourLoad>("--neighbours", load));
    }
    require_distinct("--neighbours", text, request.neighbours);
  };
  options.value("--neighbours", "LOAD,LOAD,...",
                "train in one job only; the others copy, compute or use pcie", take_neighbours);
  options.number("--repeats", "N", request.repeats, {1, 1000}, "fresh starts of each layout [5]");
  options.value(
      "--job-limit", "TIME", "time after which a job counts as failed: 2h [30m]",
      [&](const std::string& text) { request.job_seconds = parse_duration("--job-limit", text); });
}

}  // namespace nearmetal
