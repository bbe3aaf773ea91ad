#include <stdexcept>
#include <string>
#include <vector>

#include "bench/commands/program.h"
#include "models/networks/registry.h"
#include "reports/text/text_table.h"

namespace nearmetal {
namespace {

constexpr const char* models_examples = R"(
Examples:
  nearmetal models                        what --model takes, with parameters and FLOPs
  nearmetal models --image-size 64        FLOPs of smaller images

A multiply-add of a convolution or a product counts as two FLOPs, as in reports. Attention takes
4 x tokens^2 x features forward and twice as many backward. The dropout of VGG, ViT and BERT has
probability 0: it computes nothing. On CPUs ViT and BERT are trained in fp32 alone.)";

void add_models_options(Options& options, NetworkOptions& form) {
  options.number("--image-size", "N", form.image_size, {1, 16384}, "height and width in pixels");
  options.number("--classes", "N", form.classes, {2, 1e6}, "number of classes");
  options.number("--sequence", "N", form.sequence, {8, 512}, "tokens per sequence");
}

std::string giga(double value) { return fixed(1e-9 * value, 2); }

ExitCode run_models(const NetworkOptions& form, const Context& context) {
  TextTable table;
  std::vector<std::string> refusals;
  table.columns = {{"model"},
                   {"sample"},
                   {"parameters", true},
                   {"GFLOP forward", true},
                   {"GFLOP training", true}};
  for (const Network& network : networks()) {
    const char* const sample = words_of(network.sample).singular;
    try {
      const Graph graph = network.build(form);
      table.rows.push_back({network.name, sample, std::to_string(graph.parameter_count()),
                            giga(graph.forward_flops_per_sample()),
                            giga(graph.training_flops_per_sample())});
    } catch (const std::invalid_argument& refusal) {
      table.rows.push_back({network.name, sample, "-", "-", "-"});
      refusals.emplace_back(refusal.what());
    }
  }
  print_aligned(context.terminal.out, table);
  for (const std::string& refusal : refusals) context.terminal.out << refusal << "\n";
  return ExitCode::ok;
}

}  // namespace

Command models_command() {
  return make_command("models", "List the networks that can be trained", models_examples,
                      add_models_options, run_models);
}

}  // namespace nearmetal
