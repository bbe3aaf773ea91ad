#include "bench/commands/run.h"

#include <memory>

#include "bench/cli/exit_status.h"
#include "bench/commands/program.h"
#include "bench/run/together.h"

namespace nearmetal {
namespace {

constexpr const char* run_examples = R"(
Examples:
  nearmetal run                                          about 20 s on the GPU, else the CPU
  nearmetal run --precision bf16 --batch auto            the largest that fits and runs well
  nearmetal run --device cpu --image-size 64 --steps 20  a quick look on the CPU
  nearmetal run --profile --output step.json             where the step goes
  mpirun -n 4 nearmetal run                              four ranks, one GPU each
  nearmetal run --json | jq .arms[0].runs[0].throughput_images_per_second

The table goes to stdout, remarks and progress to stderr. The report goes to
nearmetal-MODEL-DEVICE-TIME.report.json in this folder unless --output or --json says otherwise.)";

}  // namespace

ExitCode run_job(const RunRequest& request, const Context& context) {
  const RunConfig& asked = request.config;
  const Collective& collective = collective_for(asked.all_reduce, asked.device != Device::cpu);
  const bool sums_on_threads =
      collective.needs_mpi_threads && asked.update == Update::allreduce && !asked.forward_only;
  const std::unique_ptr<World> world = join_world(
      asked.ranks, sums_on_threads ? "--all-reduce " + std::string(collective.name) : "");
  return as_rank(*world, context.terminal.err, [&] { return run_rank(request, context, *world); });
}

Command run_command() {
  const auto run = [](const RunRequest& request, const Context& context) {
    catch_stop_signals();
    return run_job(request, context);
  };
  return make_command<RunRequest>("run", "Train one workload, print a table, write a report",
                                  run_examples, add_run_options, run);
}

}  // namespace nearmetal
