#include "bench/cli/command_line.h"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <stdexcept>

#include "bench/cli/command_options.h"
#include "bench/cli/command_table.h"
#include "bench/cli/parse_value.h"
#include "bench/cli/suggest.h"

namespace nearmetal {
namespace {

using Command = CommandLine::Command;

constexpr const char* program_examples = R"(
Examples:
  nearmetal run                           train on the GPU, or the CPU where there is none
  nearmetal run --batch 512 --verify      a larger batch, and proof that the network learns
  nearmetal plan 1x1x2 --format sh        a script for one job on two GPUs
  nearmetal compare --base old*.json --new new*.json
                                          the difference, with an interval and a verdict
  nearmetal baseline add main old*.json   keep runs as what later ones are held against
  nearmetal gate main new*.json           exit 1 if they are shown to be slower
  nearmetal run --help                    all options of a command

Exit codes: 0 ok, 1 gate failed, 2 wrong usage, 3 inconclusive or too few runs, 4 not comparable,
  5 invalid report, 6 run failed, 7 timed out, 8 not supported here,
  9 output could not be written, 130/143 interrupted.)";

constexpr const char* validate_examples = R"(
Examples:
  nearmetal validate *.report.json        a line for each; exit 5 where one is not valid

Reports of earlier versions are valid, too.)";

constexpr const char* schema_examples = R"(
Examples:
  nearmetal schema > report.schema.json   of what run and sweep write
  nearmetal schema layout                 of the files that sweep and plan read)";

constexpr const char* generate_examples = R"(
Examples:
  nearmetal generate bash > ~/.local/share/bash-completion/completions/nearmetal
  nearmetal generate man | man -l -)";

void refuse_extras(const CLI::App& app, const CLI::App& used, bool has_command) {
  const std::vector<std::string> extras = app.remaining(true);
  if (extras.empty()) return;
  const std::string word = extras.front().substr(0, extras.front().find('='));
  const bool is_option = word.starts_with("-");
  std::vector<std::string> known;
  if (is_option) {
    for (const CLI::Option* option : used.get_options()) known.push_back(option->get_name());
  } else if (!has_command) {
    for (const CLI::App* command : app.get_subcommands({})) known.push_back(command->get_name());
  }
  const std::string kind = is_option ? "option" : has_command ? "argument" : "command";
  const std::string help = has_command ? "nearmetal " + used.get_name() : "nearmetal";
  throw std::invalid_argument("unknown " + kind + " '" + word + "'" + did_you_mean(word, known) +
                              " (" + help + " --help)");
}

CLI::App* add_validate_command(CLI::App& app, CommandLine& line) {
  CLI::App* command = app.add_subcommand("validate", "Check reports against their schema");
  command->footer(validate_examples);
  command->add_option("FILE", line.validate_files, "Reports, or folders of them")->required();
  return command;
}

CLI::App* add_schema_command(CLI::App& app, CommandLine& line) {
  CLI::App* command = app.add_subcommand("schema", "Print a JSON Schema");
  command->footer(schema_examples);
  const auto take = [&line](const std::string& name) {
    require_choice("schema", name, {"report", "comparison", "layout", "plan", "doctor"});
    line.schema_name = name;
  };
  command->add_option_function<std::string>("NAME", take,
                                            "report, comparison, layout, plan, doctor [report]");
  return command;
}

CLI::App* add_generate_command(CLI::App& app, CommandLine& line) {
  CLI::App* command = app.add_subcommand("generate", "Print shell completion or the manual page");
  command->footer(generate_examples);
  const auto take = [&line](const std::string& form) {
    require_choice("generate", form, {"bash", "zsh", "fish", "man"});
    line.generate_form = form;
  };
  command->add_option_function<std::string>("FORM", take, "bash, zsh, fish or man")
      ->option_text("bash|zsh|fish|man")
      ->required();
  return command;
}

// The program with all its commands; values go to `line`.
std::vector<std::pair<CLI::App*, Command>> add_all(CLI::App& app, CommandLine& line) {
  app.name("nearmetal");
  app.description("Trains a real ResNet on synthetic data and reports how fast.");
  app.get_formatter()->column_width(36);
  app.allow_extras();
  app.require_subcommand(0, 1);  // the word after a command is an argument: `schema report`
  app.footer(program_examples);
  app.add_flag("--version")->description("Versions of the program and its libraries");
  return {
      {add_run_command(app, line), Command::run},
      {add_export_command(app, line), Command::export_tensors},
      {add_compare_command(app, line), Command::compare},
      {add_gate_command(app, line), Command::gate},
      {add_baseline_command(app, line), Command::baseline},
      {add_rerun_command(app, line), Command::rerun},
      {add_report_command(app, line), Command::report},
      {add_plan_command(app, line), Command::plan},
      {add_sweep_command(app, line), Command::sweep},
      {add_micro_command(app, line), Command::micro},
      {add_stress_command(app, line), Command::stress},
      {add_doctor_command(app, line), Command::doctor},
      {add_validate_command(app, line), Command::validate},
      {add_schema_command(app, line), Command::schema},
      {add_generate_command(app, line), Command::generate},
  };
}

// What an option takes, as its help shows it.
std::string value_of(const CLI::Option& option) {
  if (option.get_items_expected_max() == 0) return "";
  const std::string& text = option.get_option_text();
  if (!option.nonpositional()) {
    return text.find('|') != std::string::npos ? text : option.get_name(true);
  }
  return text.empty() ? option.get_type_name() : text;
}

CommandText described(const CLI::App& app) {
  CommandText command{app.get_name(), app.get_description(), app.get_footer(), {}, {}};
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group().empty()) continue;  // hidden
    OptionText text{{}, value_of(*option), option->get_description(), option->get_group()};
    for (const std::string& name : option->get_snames()) text.names.push_back("-" + name);
    for (const std::string& name : option->get_lnames()) text.names.push_back("--" + name);
    command.options.push_back(std::move(text));
  }
  for (const CLI::App* inner : app.get_subcommands({})) {
    command.commands.push_back(described(*inner));
  }
  return command;
}

void add_to(CLI::App& command, const OptionSpec& spec) {
  CLI::Option* option = nullptr;
  switch (spec.takes) {
    case OptionSpec::Takes::nothing:
      option = command.add_flag_callback(
          spec.name, [set = spec.set] { set({}); }, spec.help);
      break;
    case OptionSpec::Takes::one:
      option = command.add_option_function<std::string>(
          spec.name, [set = spec.set](const std::string& text) { set({text}); }, spec.help);
      option->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
      break;
    case OptionSpec::Takes::many:
      option =
          command.add_option_function<std::vector<std::string>>(spec.name, spec.set, spec.help);
      break;
  }
  if (!spec.value.empty()) option->option_text(spec.value);
  option->group(spec.hidden ? "" : spec.group)->required(spec.required);
}

void parse(CLI::App& app, const std::vector<std::string>& arguments) {
  try {
    app.parse(std::vector<std::string>(arguments.rbegin(), std::prev(arguments.rend())));
  } catch (const CLI::CallForHelp&) {
    throw;
  } catch (const CLI::ArgumentMismatch& error) {
    const std::string text = error.what();  // "--batch: ..."
    throw std::invalid_argument(text.substr(0, text.find(':')) + " takes a value");
  } catch (const CLI::ParseError& error) {
    throw std::invalid_argument(error.what());
  }
}

}  // namespace

void add_to(CLI::App& command, const Options& options) {
  for (const OptionSpec& spec : options.specs()) add_to(command, spec);
}

CommandLine parse_command_line(const std::vector<std::string>& arguments) {
  CommandLine line;
  line.argv = arguments;
  CLI::App app;
  const auto commands = add_all(app, line);
  try {
    parse(app, arguments);
  } catch (const CLI::CallForHelp&) {
    line.help = app.help();
    return line;
  }
  const auto used = app.get_subcommands();
  refuse_extras(app, used.empty() ? app : *used.front(), !used.empty());
  const bool version = app.count("--version") > 0;
  if (version) line.command = Command::version;
  for (const auto& [command, name] : commands) {
    if (!version && !used.empty() && used.front() == command) line.command = name;
  }
  if (line.command == Command::help) {
    throw std::invalid_argument("a command is missing: run, compare, gate, ... (nearmetal --help)");
  }
  return line;
}

CommandText command_table() {
  CommandLine line;
  CLI::App app;
  add_all(app, line);
  return described(app);
}

}  // namespace nearmetal
