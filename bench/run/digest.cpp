#include "bench/run/digest.h"

#include <algorithm>
#include <array>
#include <ios>

#include "base/sha256.h"
#include "base/text.h"
#include "bench/run/together.h"
#include "models/synthetic.h"

namespace nearmetal {
namespace {

constexpr std::array<int64_t, 4> digested_steps = {1, 2, 4, 8};
constexpr int64_t most_digested_samples = 16;  // they fill the batch over and over

StepDigest digest_of(int64_t step, float loss, const Graph& graph, Program& program) {
  constexpr size_t digits = 16;
  const std::vector<float> values = program.parameters();
  TextStream bits;
  bits << std::hexfloat << loss;
  StepDigest digest{.step = step, .loss = bits.str(), .sha256 = {}};
  for (const Parameter& parameter : graph.parameters()) {
    const auto own = std::span(values).subspan(parameter.offset, parameter.size);
    const auto* const bytes = reinterpret_cast<const char*>(own.data());
    digest.sha256.push_back(sha256({bytes, own.size_bytes()}).substr(0, digits));
  }
  return digest;
}

}  // namespace

std::vector<DigestGroup> take_digests(const RankTask& task, Program& program) {
  const Graph& graph = task.device.graph;
  const RunConfig& config = task.config();
  const auto seed = static_cast<uint64_t>(config.seed);
  // Not the samples that it trains on, which differ from rank to rank.
  const Samples samples =
      repeated_samples(graph, substream(seed, 0x646967657374), step_samples(config),
                       std::min(most_digested_samples, *config.batch));
  program.use_learning_rate(*config.learning_rate);  // --verify took another
  program.restart(initial_parameters(graph, seed, config.zero_init));
  samples.give_to(program);
  std::unique_ptr<Consensus> others;  // null: no rank waits for another
  if (in_step(config, task.world.size())) others = make_consensus(task.world, true);
  DigestGroup own;
  own.ranks = {task.world.rank()};
  own.parameters = transformed(graph.parameters(), &Parameter::name);
  for (int64_t step = 1; step <= digested_steps.back(); ++step) {
    StepVote all{.stop = task.context.stop != 0};
    if (others) all = others->agree(all);
    if (all.stop) return {};
    program.enqueue_step();
    const float loss = program.wait_step().loss;
    if (std::ranges::count(digested_steps, step) == 0) continue;
    own.steps.push_back(digest_of(step, loss, graph, program));
  }
  return {own};
}

}  // namespace nearmetal
