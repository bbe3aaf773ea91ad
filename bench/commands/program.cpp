#include "bench/commands/program.h"

#include <algorithm>
#include <functional>
#include <stdexcept>
#include <variant>
#include <vector>

#include "base/errors.h"
#include "base/text.h"
#include "base/text_table.h"
#include "bench/cli/process.h"
#include "bench/doctor/diagnose.h"
#include "bench/sweep/make_launch_plan.h"
#include "comm/launch/launch_plan_text.h"
#include "comm/layout/layout_json.h"
#include "comm/layout/shell_text.h"
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

// Versions, commit, and each backend with its libraries or why it does not work here.
ExitCode print_version(const std::monostate&, const Context& context) {
  const Terminal& terminal = context.terminal;
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

constexpr const char* help_examples = R"(
Examples:
  nearmetal help                          the commands
  nearmetal help run                      all options of one, as nearmetal run --help
  nearmetal help vm                       a VM against bare metal, in five steps)";

// docs/vm_against_bare_metal.md has the same commands.
constexpr const char* vm_steps =
    R"(A VM against bare metal, in five steps (docs/vm_against_bare_metal.md)

1. Say what both sides are: your names, addresses and numbers of GPUs. Layouts are matched by name.
  cp %dell_bare_metal% bare_metal.json
  cp %dell_vms% vms.json

2. Check each side for what keeps runs from starting.
  nearmetal doctor bare_metal.json
  nearmetal doctor vms.json

3. Measure both sides by turns, on three days or after restarts, which differ in heat and neighbours.
  nearmetal sweep bare_metal.json --repeats 3 --output bare_metal_1.json
  nearmetal sweep vms.json --repeats 3 --output vms_1.json
  nearmetal sweep bare_metal.json --repeats 3 --output bare_metal_2.json
  nearmetal sweep vms.json --repeats 3 --output vms_2.json
  nearmetal sweep bare_metal.json --repeats 3 --output bare_metal_3.json
  nearmetal sweep vms.json --repeats 3 --output vms_3.json

4. Bring the reports together; any way of copying does.
  nearmetal validate bare_metal_1.json bare_metal_2.json bare_metal_3.json vms_1.json vms_2.json vms_3.json

5. Compare: a page with charts, and the table to paste.
  nearmetal compare --bare bare_metal_1.json bare_metal_2.json bare_metal_3.json \
    --vm vms_1.json vms_2.json vms_3.json --html vms.html
  nearmetal compare --bare bare_metal_1.json bare_metal_2.json bare_metal_3.json \
    --vm vms_1.json vms_2.json vms_3.json --markdown
)";
constexpr const char* vm_topic = "vm";

// The steps with the layouts where these came with this program.
std::string vm_steps_here() {
  std::string text = vm_steps;
  for (const std::string name : {"dell_bare_metal", "dell_vms"}) {
    text = replaced(text, "%" + name + "%", shell_quoted(shipped_layout_file(name)));
  }
  return text;
}

void add_help_options(Options& options, std::vector<std::string>& command) {
  options.values("COMMAND", " ", "command, such as run or baseline add; or the topic vm", command)
      .words = [] {
    std::vector<std::string> names = transformed(program().commands, &Command::name);
    names.emplace_back(vm_topic);
    return names;
  };
}

// Help is printed before words are looked at that the parser does not know.
void require_command(const std::vector<std::string>& words) {
  std::vector<Command> commands = program().commands;
  for (const std::string& word : words) {
    const std::vector<std::string> names = transformed(commands, &Command::name);
    const auto found = std::ranges::find(names, word);
    if (found == names.end()) {
      throw std::invalid_argument("unknown command '" + word + "'" + did_you_mean(word, names) +
                                  " (nearmetal help)");
    }
    commands = std::vector(commands[found - names.begin()].commands);
  }
}

ExitCode print_help(const std::vector<std::string>& command, const Context& context) {
  require_command(command);
  std::vector<std::string> words = {context.argv.front()};
  words.insert(words.end(), command.begin(), command.end());
  words.emplace_back("--help");
  return parse_command_line(program(), words)(context);
}

ExitCode run_help(const std::vector<std::string>& command, const Context& context) {
  if (command != std::vector<std::string>{vm_topic}) return print_help(command, context);
  context.terminal.out << vm_steps_here();
  return ExitCode::ok;
}

constexpr const char* program_examples = R"(
Examples:
  nearmetal run                           train on the GPU, or the CPU where there is none
  nearmetal run --batch 512 --verify      a larger batch, and proof that the network learns
  nearmetal plan 1x1x2 --format sh        a script for one job on two GPUs
  nearmetal compare --base old*.json --new new*.json
                                          the difference, with an interval and a verdict
  nearmetal baseline add main old*.json   keep runs to compare later ones with
  nearmetal gate main new*.json           exit 1 if they are shown to be slower
  nearmetal help run                      all options of a command

Exit codes:
)";

std::string exit_codes_text() {
  const auto line = [](const ExitMeaning& exit) {
    const std::string code = std::to_string(static_cast<int>(exit.code));
    return std::string(5 - code.size(), ' ') + code + "  " + exit.meaning;
  };
  return joined(transformed(exit_meanings(), line), "\n");
}

void declare_program(Options& options, bool& version) {
  options.toggle("-V,--version", version, "Versions of the program and its libraries");
}

ExitCode run_program(const bool& version, const Context& context) {
  return version ? print_version({}, context) : print_help({}, context);
}

}  // namespace

Command program() {
  Command program = make_command(
      "nearmetal",
      "Trains a real network on synthetic data and reports how fast the machine does it.",
      program_examples + exit_codes_text(), declare_program, run_program);
  program.commands = {
      run_command(),
      export_command(),
      compare_command(),
      gate_command(),
      baseline_command(),
      reference_command(),
      rerun_command(),
      report_command(),
      import_command(),
      plan_command(),
      sweep_command(),
      survey_command(),
      predict_command(),
      micro_command(),
      stress_command(),
      doctor_command(),
      make_command("validate", "Check that reports fit their schema and are consistent",
                   validate_examples, add_validate_options, run_validate),
      make_command("schema", "Print a JSON Schema", schema_examples, add_schema_options,
                   run_schema),
      generate_command(),
      make_command("models", "List the networks that can be trained", models_examples,
                   add_models_options, run_models),
      make_command("help", "Print the help of a command", help_examples, add_help_options,
                   run_help),
      make_command<std::monostate>(
          "version", "Print the versions of the program and its libraries", version_examples,
          [](Options&, std::monostate&) {}, print_version),
      tf_cnn_benchmarks_command(),
  };
  return program;
}

}  // namespace nearmetal
