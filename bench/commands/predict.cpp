#include <algorithm>
#include <cstdlib>
#include <stdexcept>

#include "bench/cli/output.h"
#include "bench/cli/process.h"
#include "bench/commands/compare.h"
#include "bench/commands/program.h"
#include "models/networks/registry.h"
#include "reports/compare/work_text.h"
#include "reports/forecast/forecast.h"
#include "reports/formats/forecast_text.h"
#include "reports/json/json.h"

namespace nearmetal {
namespace {

constexpr const char* predict_examples = R"(
Examples:
  nearmetal predict sweep.json --gpus 4 --per-host 4
  nearmetal predict sweep.json --gpus 8,64,512 --per-host 8 --network 400G,3us
  nearmetal predict --bare metal.json --vm vm.json --gpus 64,512 --per-host 8 --network 400G,3us
  nearmetal predict sweep.json --gpus 8 --per-host 8 --output forecast.json
  nearmetal compare forecast.json later.json    how far it was off, against its band

First comes the error: the sizes of fewer ranks forecast that of the most. The sweep needs two sizes
or more. Reports of nearmetal tell how long sums take; published results (nearmetal import) tell
throughput alone, so that the network cannot be chosen and the band is wide. docs/forecast.md says
what is simulated.)";

struct PredictForm {
  Places places, bare, vm;
  ForecastRequest request;
  int64_t pipeline = 1;
  CompareRequest output;  // its forms
  std::optional<std::string> report;
};

// The shares of a step's computation after which these shares of its gradients are ready, by the
// FLOPs of the network: the backward pass has twice those of the forward one. Empty for another
// network.
std::vector<double> ready_by_flops(const SetRun& run, const std::vector<double>& shares) {
  const auto number = [&](const char* field, int64_t& option) {
    const int64_t value = std::strtoll(key_value(run, field).c_str(), nullptr, 10);
    if (value > 0) option = value;
  };
  try {
    NetworkOptions options;
    number("image_size", options.image_size);
    number("classes", options.classes);
    number("sequence", options.sequence);
    const Graph graph = build_network(key_value(run, "model"), options);
    const double forward = graph.forward_flops_per_sample();
    const auto all = static_cast<double>(graph.parameter_count());
    std::vector<double> ready;
    double flops = forward, parameters = 0;
    for (auto node = graph.nodes().rbegin(); node != graph.nodes().rend(); ++node) {
      flops += 2 * graph.forward_flops(*node);
      for (const int index : node->parameters) {
        parameters += static_cast<double>(graph.parameters().at(index).size);
      }
      while (ready.size() < shares.size() &&
             parameters >= shares[ready.size()] * all * (1 - 1e-9)) {
        ready.push_back(std::min(1.0, flops / (3 * forward)));
      }
    }
    ready.resize(shares.size(), 1);
    return ready;
  } catch (const std::invalid_argument&) {
    return {};
  }
}

std::vector<int64_t> parse_counts(const std::string& flag, const std::string& text) {
  constexpr double most = 65536;
  std::vector<int64_t> counts;
  for (const std::string& part : split(text, ",")) {
    add_new(counts, parse_number<int64_t>(flag, part, {1, most}));
  }
  return counts;
}

// "400G,3us": bits per second of a host, and latency.
Link parse_network(const std::string& flag, const std::string& text) {
  const std::vector<std::string> parts = split(text, ",");
  if (parts.size() != 2 || !parts[1].ends_with("us")) {
    throw std::invalid_argument(flag +
                                " takes the bits per second of a host and the latency, such " +
                                "as 400G,3us, not '" + text + "'");
  }
  const std::string microseconds = parts[1].substr(0, parts[1].size() - 2);
  return {parse_amount(flag, parts[0]) / 8,
          1e-6 * parse_number<double>(flag, microseconds, {0, 1e6})};
}

void check_form(const PredictForm& form) {
  const bool pair = !form.bare.empty() && !form.vm.empty();
  if (form.places.empty() != pair || form.bare.empty() != form.vm.empty()) {
    throw std::invalid_argument("predict takes FILE..., or --bare FILE... --vm FILE...");
  }
  if (form.request.ranks.empty()) {
    throw std::invalid_argument(
        "predict needs --gpus, the numbers of ranks to forecast, such as --gpus 8,64");
  }
  if (form.pipeline > 1) {
    throw std::invalid_argument(
        "--pipeline: reports of whole networks do not tell what stages take and send; "
        "run --pipeline measures that");
  }
}

void add_predict_options(Options& options, PredictForm& form) {
  ForecastRequest& request = form.request;
  options.paths("FILE", "FILE...", form.places, "Reports of a sweep, FILE#ARM, folders");
  options.value("--gpus", "N,...", "numbers of ranks to forecast: 8,64,512", request.ranks,
                parse_counts);
  options.number("--per-host", "N", request.per_host, {1, 1024},
                 "ranks of a host [as many as were measured]");
  options.value("--network", "BITS,LATENCY", "between hosts, of each host: 400G,3us [as measured]",
                request.network, parse_network);
  options.number("--batch", "N", request.batch, {1, 1e6},
                 "batch of a rank, one of those that were measured");
  options.number("--accumulate", "N", request.accumulate, {1, 1e6},
                 "micro-batches of a step [as measured]");
  options.value("--gradient-type", "computed|fp32|bf16|fp16",
                "type of gradients on their way [as measured]", request.gradient_type,
                parse_choice<GradientType>);
  options.number("--pipeline", "N", form.pipeline, {1, 1024},
                 "stages; only 1, as reports tell nothing of others");
  options.paths("--bare", "FILE...", form.bare, "reports of bare metal");
  options.paths("--vm", "FILE...", form.vm, "reports of a VM: what it loses at each size");
  CompareRequest& output = form.output;
  options.toggle("--json", output.json, "print the report of kind predicted");
  options.toggle("--markdown", output.markdown, "print Markdown");
  options.path("--html", "FILE", output.html, "also write a page");
  options.path("--output", "FILE", form.report, "also write the report of kind predicted");
  options.toggle("--force", output.force, "replace an existing file");
  options.check([&form] { check_form(form); });
}

ExitCode run_predict(const PredictForm& form, const Context& context) {
  const OutputFile file{form.report, form.output.force};
  std::vector<Places> sides = {form.places};
  if (form.places.empty()) sides = {form.bare, form.vm};
  for (const Places& places : sides) {
    require_no_input(form.output, places);
    if (file.path) require_no_input(file, files_of(places));
  }
  ForecastRequest request = form.request;
  request.ready = ready_by_flops;
  const std::vector<RunSet> sets = read_sides(sides, true);
  for (const RunSet& set : sets) remark_foreign(set, context.terminal);
  Forecast forecast = forecast_of(sets, request);
  Report& report = forecast.report;
  report.tool = build_info();
  report.invocation.argv = context.argv;
  report.invocation.started_at = time_stamp();
  if (file.path) {
    write_output(file, context.terminal, [&](std::ostream& out) { out << to_json(report); });
  }
  publish(forecast_page(forecast), form.output, context.terminal);
  if (form.output.json) context.terminal.out << to_json(report);
  return ExitCode::ok;
}

}  // namespace

Command predict_command() {
  return make_command("predict", "Forecast sizes that were not measured, with the error first",
                      predict_examples, add_predict_options, run_predict);
}

}  // namespace nearmetal
