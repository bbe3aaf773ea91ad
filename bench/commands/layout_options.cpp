#include "bench/commands/layout_options.h"

#include <algorithm>
#include <stdexcept>
#include <vector>

#include "bench/cli/parse_value.h"
#include "bench/sweep/grid.h"
#include "bench/sweep/shipped_layouts.h"
#include "comm/layout/layout.h"

namespace nearmetal {

const char* const short_form_text = R"(
Layouts in short: nodes x VMs per node x GPUs per VM, K*(...) for K such jobs at once, + for others:
  1x1x2 is one job on two GPUs, 2*(1x1x1) are two on one each. Without any: 1, 2, 4, ... all GPUs.
  More than one VM on a node are pretended (kind emulated): parts of the host without P2P or shared
  memory between them. Real VMs are hosts; a layout file can say which share a node.

Ranks read and write the files of --plans, --plan-cache and --host-facts themselves: on several
hosts, under one path on each. --plans is read here, too: a layout takes the plans of an arm that
did the same work; of several, the one with its name. It is refused (exit 2) where there is none,
without a number for --batch, and where a layout's jobs have shares of different sizes: plans hold
for one size.
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
  options.number("--fractions", "JOBS", request.fractions, {2, 64},
                 "on one GPU, in every way; of batch 64 unless given");
  options.repeated("--grid", "NAME=VALUE,...",
                   "each layout with each value; of several: every combination",
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
                "one of --fractions trains, all others copy, compute or use pcie", take_neighbours);
  options.number("--repeats", "N", request.repeats, {1, 1000}, "fresh starts of each layout [5]");
  options.value(
      "--job-limit", "TIME", "after which a job has failed: 2h [30m]",
      [&](const std::string& text) { request.job_seconds = parse_duration("--job-limit", text); });
}

}  // namespace nearmetal
