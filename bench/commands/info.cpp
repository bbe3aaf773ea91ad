#include <functional>
#include <stdexcept>
#include <string>
#include <variant>
#include <vector>

#include "base/errors.h"
#include "base/text_table.h"
#include "bench/cli/process.h"
#include "bench/commands/program.h"
#include "bench/doctor/diagnose.h"
#include "comm/launch/launch_plan_text.h"
#include "comm/layout/layout_json.h"
#include "comm/nccl.h"
#include "models/load_module.h"
#include "models/networks/registry.h"
#include "models/program.h"
#include "reports/compare/read_runs.h"
#include "reports/formats/comparison_json.h"
#include "reports/json/json.h"
#include "reports/json/report_files.h"

namespace nearmetal {
namespace {

std::string backend_text(const std::string& name) {
  const DeviceInfo device = load_backend(name).describe(0);
  std::string text = device.name;
  for (const auto& [library, version] : device.libraries) text += ", " + library + ' ' + version;
  return text;
}

void print_part(std::ostream& out, const std::string& part,
                const std::function<std::string()>& text) {
  try {
    print_line(out, part + ": " + text());
  } catch (const std::exception& error) {
    print_line(out, part + ": not usable: " + message_of(error));
  }
}

constexpr const char* validate_examples = R"(
Examples:
  nearmetal validate *.report.json        a line for each; exit 5 where one is not valid

Reports of earlier versions are valid, too.)";

constexpr const char* schema_examples = R"(
Examples:
  nearmetal schema > report.schema.json   the form of reports, which run and sweep write
  nearmetal schema layout                 the form of layout files, which sweep and plan read)";

struct Schema {
  const char* name;
  std::string (*text)();
};

constexpr Schema schemas[] = {
    {"report", report_schema}, {"comparison", comparison_schema}, {"layout", layout_schema},
    {"plan", plan_schema},     {"doctor", doctor_schema},         {"baselines", baselines_schema},
};

void add_schema_options(Options& options, const Schema*& schema) {
  schema = &schemas[0];
  options
      .value("NAME", "", with_default(joined(row_names(schemas)), schema->name),
             [&schema](const std::string& text) { schema = &find_row(schemas, "schema", text); })
      .words = [] { return row_names(schemas); };
}

ExitCode run_schema(const Schema* const& schema, const Context& context) {
  context.terminal.out << schema->text();
  return ExitCode::ok;
}

void add_validate_options(Options& options, std::vector<std::string>& paths) {
  options.values("FILE", "", "Reports, or folders of them", paths).required = true;
}

// One line for each report; those that are not valid on the side of errors.
bool validate(ReportText text, const Terminal& terminal) {
  const std::string source = text.source;
  try {
    const Report report = read_report(std::move(text));
    terminal.out << printable(source) << ": valid, schema " << report.schema_version << ", "
                 << to_string(report.status) << '\n';
    return true;
  } catch (const InvalidReport& error) {
    terminal.error(error.what());
    return false;
  }
}

ExitCode run_validate(const std::vector<std::string>& paths, const Context& context) {
  bool valid = true;
  for (const std::string& file : files_of(paths)) {
    try {
      for (ReportText& text : report_texts(file)) {
        valid &= validate(std::move(text), context.terminal);
      }
    } catch (const InvalidReport& error) {
      context.terminal.error(error.what());
      valid = false;
    }
  }
  return valid ? ExitCode::ok : ExitCode::invalid_report;
}

constexpr const char* version_examples = R"(
Examples:
  nearmetal version                       what nearmetal --version and -V print)";

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

ExitCode print_version(const Terminal& terminal) {
  const Tool tool = build_info();
  terminal.out << "nearmetal " << tool.version << "\ncommit "
               << (tool.git_commit ? *tool.git_commit : "unknown: " + tool.git_commit.reason)
               << (tool.dirty && *tool.dirty ? " with local changes" : "") << "\nbuilt as "
               << tool.build_type << " by " << tool.compiler << '\n';
  for (const std::string name : {"cpu", "cuda"}) {
    print_part(terminal.out, "backend " + name, [&] { return backend_text(name); });
  }
  print_part(terminal.out, "between GPUs", [] { return load_nccl().version(); });
  return ExitCode::ok;
}

Command version_command() {
  return make_command<std::monostate>(
      "version", "Print the versions of the program and its libraries", version_examples,
      [](Options&, std::monostate&) {},
      [](const std::monostate&, const Context& context) {
        return print_version(context.terminal);
      });
}

Command schema_command() {
  return make_command("schema", "Print a JSON Schema", schema_examples, add_schema_options,
                      run_schema);
}

Command models_command() {
  return make_command("models", "List the networks that can be trained", models_examples,
                      add_models_options, run_models);
}

Command validate_command() {
  return make_command("validate", "Check that reports fit their schema and are consistent",
                      validate_examples, add_validate_options, run_validate);
}

}  // namespace nearmetal
