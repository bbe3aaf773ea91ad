#include "bench/cli/command_line.h"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <map>
#include <stdexcept>
#include <utility>

namespace nearmetal {
namespace {

const OptionSpec help_option{.name = "-h,--help", .help = "Print this help message and exit"};

using Actions = std::map<const CLI::App*, Action>;

// Choices that do not fit behind their option on a line of 100 columns go on below one another.
std::string value_in_help(const OptionSpec& spec) {
  constexpr size_t most_columns = 100;
  const size_t indent = 2 + spec.name.size() + 1;
  std::string text;
  size_t columns = indent;
  std::vector<std::string> choices = split(spec.value, "|");
  for (size_t i = 0; i + 1 < choices.size(); ++i) choices[i] += '|';
  for (const std::string& choice : choices) {
    if (columns + choice.size() > most_columns && columns > indent) {
      text += "\n" + std::string(indent, ' ');
      columns = indent;
    }
    text += choice;
    columns += choice.size();
  }
  return text;
}

std::string shown_name(const std::string& name) { return replaced(name, "_", " "); }

struct HelpFormatter : CLI::Formatter {
  std::string make_option_name(const CLI::Option* option, bool is_argument) const override {
    const std::string name = Formatter::make_option_name(option, is_argument);
    return is_argument ? shown_name(name) : name;
  }
};

void add_option(CLI::App& app, const OptionSpec& spec) {
  // CLI11 takes no space in the name of an argument, such as "BASE NEW", from version 2.4 on.
  const std::string name = replaced(spec.name, " ", "_");
  CLI::Option* option = nullptr;
  if (spec.takes == OptionSpec::Takes::nothing) {
    option = app.add_flag_callback(
        name, [set = spec.set] { set({}); }, spec.help);
  } else {
    option = app.add_option_function<std::vector<std::string>>(name, spec.set, spec.help);
  }
  if (spec.takes == OptionSpec::Takes::one || spec.takes == OptionSpec::Takes::each) {
    option->expected(1)->allow_extra_args(false);
    option->multi_option_policy(spec.takes == OptionSpec::Takes::one
                                    ? CLI::MultiOptionPolicy::TakeLast
                                    : CLI::MultiOptionPolicy::TakeAll);
  }
  if (spec.takes == OptionSpec::Takes::perhaps) {
    option->expected(0, 1)->allow_extra_args(false);
    option->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  }
  if (!spec.value.empty()) option->option_text(value_in_help(spec));
  option->group(spec.group)->required(spec.required);
}

void add_command(CLI::App& app, const Command& command, Actions& actions) {
  app.name(command.name);
  app.description(command.help);
  app.footer(command.examples);
  Options options;
  actions[&app] = command.declare(options);
  for (const OptionSpec& spec : options.specs()) add_option(app, spec);
  if (options.rule()) app.callback(options.rule());
  for (const Command& inner : command.commands) {
    add_command(*app.add_subcommand(inner.name, inner.help), inner, actions);
  }
}

void parse(CLI::App& app, const std::vector<std::string>& arguments) {
  try {
    app.parse(std::vector<std::string>(arguments.rbegin(), std::prev(arguments.rend())));
  } catch (const CLI::CallForHelp&) {
    throw;
  } catch (const CLI::ArgumentMismatch& error) {
    const std::string text = error.what();  // "--batch: ..."
    throw std::invalid_argument(text.substr(0, text.find(':')) + " takes a value");
  } catch (const CLI::RequiredError& error) {
    throw std::invalid_argument(shown_name(error.what()));
  } catch (const CLI::ParseError& error) {
    throw std::invalid_argument(error.what());
  }
}

// The last command that was named, unless an option of the program itself was.
const CLI::App& asked_for(const CLI::App& program) {
  for (const CLI::Option* option : program.get_options()) {
    if (option->count() > 0) return program;
  }
  const CLI::App* asked = &program;
  while (!asked->get_subcommands().empty()) asked = asked->get_subcommands().back();
  return *asked;
}

// "nearmetal baseline add".
std::string full_name(const CLI::App& command) {
  const CLI::App* parent = command.get_parent();
  return (parent == nullptr ? "" : full_name(*parent) + " ") + command.get_name();
}

void refuse_extras(const CLI::App& app, const CLI::App& asked,
                   const std::vector<std::string>& arguments) {
  std::vector<std::string> extras = app.remaining(true);
  std::erase(extras, "--");
  if (extras.empty()) return;
  const auto end_of_options = std::ranges::find(arguments, "--");
  const bool may_be_option =
      std::find(arguments.begin(), end_of_options, extras.front()) != end_of_options;
  const std::string word = extras.front().substr(0, extras.front().find('='));
  const bool is_option = may_be_option && word.starts_with("-");
  const auto commands = asked.get_subcommands({});
  const std::vector<std::string> known =
      is_option
          ? transformed(asked.get_options(), [](const auto* option) { return option->get_name(); })
          : transformed(commands, &CLI::App::get_name);
  const std::string name = full_name(asked);
  // Known, and yet left over: it stands before the command.
  if (std::ranges::find(known, word) != known.end()) {
    throw std::invalid_argument(word + " goes behind the command: " + name + " " + word);
  }
  const std::string kind = is_option ? "option" : commands.empty() ? "argument" : "command";
  throw std::invalid_argument("unknown " + kind + " '" + word + "'" + did_you_mean(word, known) +
                              " (" + name + " --help)");
}

// With the words of a command that takes those of another program as this parser reads them.
std::vector<std::string> as_parsed(const Command& program,
                                   const std::vector<std::string>& arguments) {
  if (arguments.size() < 2) return arguments;
  const auto command = std::ranges::find(program.commands, arguments[1], &Command::name);
  if (command == program.commands.end() || command->spelled_out == nullptr) return arguments;
  std::vector<std::string> words = {arguments[0], arguments[1]};
  append(words, command->spelled_out({arguments.begin() + 2, arguments.end()}));
  return words;
}

}  // namespace

std::vector<std::string> flags_of(const OptionSpec& option) {
  return is_argument(option) ? std::vector<std::string>{} : split(option.name, ",");
}

std::string value_of(const OptionSpec& option) {
  const bool is_list = option.value.find('|') != option.value.npos;
  return is_argument(option) && !is_list ? option.name : option.value;
}

Command make_group(const std::string& name, const std::string& help, const std::string& examples,
                   const std::string& which, std::vector<Command> commands) {
  Action refuse = [message = name + " takes " + which + " (nearmetal " + name + " --help)"](
                      const Context&) -> ExitCode { throw std::invalid_argument(message); };
  return {name, help, examples, [refuse](Options&) { return refuse; }, std::move(commands)};
}

Action parse_command_line(const Command& program, const std::vector<std::string>& typed) {
  const std::vector<std::string> arguments = as_parsed(program, typed);
  CLI::App app;
  app.set_help_flag(help_option.name, help_option.help);
  app.formatter(std::make_shared<HelpFormatter>());
  app.get_formatter()->column_width(36);
  app.allow_extras();
  app.require_subcommand(0, 1);  // the word after a command is an argument: `schema report`
  Actions actions;
  add_command(app, program, actions);
  try {
    parse(app, arguments);
  } catch (const CLI::CallForHelp&) {
    return [help = app.help()](const Context& context) {
      context.terminal.out << help;
      return ExitCode::ok;
    };
  } catch (const std::invalid_argument&) {
    refuse_extras(app, asked_for(app), arguments);  // a misspelt option is the mistake to name
    throw;
  }
  const CLI::App& asked = asked_for(app);
  refuse_extras(app, asked, arguments);
  return actions.at(&asked);
}

std::vector<OptionSpec> options_of(const Command& command) {
  Options options;
  command.declare(options);
  std::vector<OptionSpec> shown = {help_option};
  std::ranges::copy_if(options.specs(), std::back_inserter(shown),
                       [](const OptionSpec& option) { return !option.group.empty(); });
  return shown;
}

}  // namespace nearmetal
