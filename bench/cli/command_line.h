// Commands and their options as plain data, which parsing, help, completion and the manual read;
// and the command line: from words to what they ask for.
#pragma once

#include <algorithm>
#include <atomic>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "base/errors.h"
#include "base/text.h"
#include "bench/cli/output.h"
#include "bench/cli/parse_value.h"
#include "bench/cli/process.h"
#include "models/load_module.h"

namespace nearmetal {

struct OptionSpec {
  // The last value of a repeated option counts; each: one value, and those of all repetitions;
  // perhaps: one, or nothing.
  enum class Takes { nothing, perhaps, one, each, many };

  std::string name;  // "--batch", "-h,--help"; without dashes that of an argument: "FILE"
  Takes takes{};
  std::string value{};  // what it takes, as help shows it: "N|auto"
  std::string help{};
  /// Throws std::invalid_argument for wrong values.
  std::function<void(const std::vector<std::string>& texts)> set{};
  std::string group = "Options";  // its heading in help; empty: it is not shown
  bool required = false;
  // Words that completion offers beside the choices of `value`: these, and names of baselines.
  std::vector<std::string> (*words)() = nullptr;
  bool baselines = false;
};

/// Whether it is one without a flag.
inline bool is_argument(const OptionSpec& option) { return !option.name.starts_with("-"); }

/// "-h", "--help"; none of an argument.
std::vector<std::string> flags_of(const OptionSpec& option);

/// The value that an option or argument takes, as the manual shows it.
std::string value_of(const OptionSpec& option);

/// The help with the value that counts unless another is given: "of each probe [3]".
template <class T>
std::string with_default(const std::string& help, const T& value) {
  TextStream text;
  text << help << (help.empty() ? "[" : " [");
  if constexpr (Named<T>) {
    text << to_string(value);
  } else {
    text << value;
  }
  text << "]";
  return text.str();
}

template <class T>
std::string with_default(const std::string& help, const std::optional<T>& value) {
  if constexpr (std::is_arithmetic_v<T>) {
    if (value) return with_default(help, *value);
  }
  return help;
}

/// The names of a table, each of whose rows has a `name`.
template <class Row, size_t n>
std::vector<std::string> row_names(const Row (&rows)[n]) {
  return transformed(rows, [](const Row& row) { return std::string(row.name); });
}

/// The row of that name. Throws std::invalid_argument, naming `flag`, where there is none.
template <class Row, size_t n>
const Row& find_row(const Row (&rows)[n], const std::string& flag, const std::string& name) {
  require_choice(flag, name, row_names(rows));
  return *std::find_if(std::begin(rows), std::end(rows),
                       [&](const Row& row) { return row.name == name; });
}

/// Collects the options of a command, each tied to what it sets. Those members must stay where they
/// are until the command line is parsed.
class Options {
 public:
  using Setter = std::function<void(const std::string& text)>;
  using Texts = std::vector<std::string>;

  /// Options from now on are under this heading; an empty one hides them.
  void under(const std::string& heading) { heading_ = heading; }

  OptionSpec& value(const std::string& name, const std::string& value, const std::string& help,
                    const Setter& set) {
    return add({.name = name,
                .takes = OptionSpec::Takes::one,
                .value = value,
                .help = help,
                .set = [set](const Texts& texts) { set(texts.front()); }});
  }
  /// `member` becomes what `parse` makes of the name and the text.
  template <class T, class Parse>
  OptionSpec& value(const std::string& name, const std::string& value, const std::string& help,
                    T& member, Parse parse) {
    return this->value(name, value, help, [name, parse, &member](const std::string& text) {
      member = parse(name, text);
    });
  }
  OptionSpec& values(const std::string& name, const std::string& value, const std::string& help,
                     const std::function<void(const Texts& texts)>& set) {
    return add(
        {.name = name, .takes = OptionSpec::Takes::many, .value = value, .help = help, .set = set});
  }
  OptionSpec& values(const std::string& name, const std::string& value, const std::string& help,
                     Texts& members) {
    return values(name, value, help, [&members](const Texts& texts) { members = texts; });
  }
  OptionSpec& toggle(const std::string& name, const std::string& help,
                     const std::function<void()>& set) {
    return add({.name = name, .help = help, .set = [set](const Texts&) { set(); }});
  }
  OptionSpec& toggle(const std::string& name, bool& member, const std::string& help) {
    return toggle(name, help, [&member] { member = true; });
  }

  /// `member` is a text, which may be optional, and takes any.
  template <class T>
  OptionSpec& text(const std::string& name, const std::string& value, T& member,
                   const std::string& help) {
    return this->value(name, value, help, [&member](const std::string& text) { member = text; });
  }
  /// `member` may be optional.
  template <class T>
  OptionSpec& number(const std::string& name, const std::string& value, T& member, Range bounds,
                     const std::string& help) {
    return this->value(name, value, with_default(help, member),
                       [name, bounds, &member](const std::string& text) {
                         member = parse_number<Held<T>>(name, text, bounds);
                       });
  }
  /// `member` may be optional. The help says the default.
  template <class T>
  OptionSpec& share(const std::string& name, T& member, const Range& bounds,
                    const std::string& help) {
    return value(name, "SHARE", help, [name, bounds, &member](const std::string& text) {
      member = parse_share(name, text, bounds);
    });
  }
  /// One of the rows of a table, by its name. `member` will point to it.
  template <class Row, size_t n>
  OptionSpec& row(const std::string& name, const Row*& member, const Row (&rows)[n],
                  const std::string& help) {
    return value(
        name, joined(row_names(rows), "|"),
        member == nullptr ? help : with_default(help, member->name),
        [name, &rows, &member](const std::string& text) { member = &find_row(rows, name, text); });
  }
  /// `member` is a text, which may be optional.
  template <class T>
  OptionSpec& path(const std::string& name, const std::string& value, T& member,
                   const std::string& help) {
    return this->value(name, value, help, member, checked_path);
  }
  OptionSpec& paths(const std::string& name, const std::string& value, Texts& members,
                    const std::string& help) {
    return values(name, value, help, [name, &members](const Texts& texts) {
      for (const std::string& text : texts) members.push_back(checked_path(name, text));
    });
  }

  /// Called once all options are set. Throws std::invalid_argument where they do not go together.
  void check(std::function<void()> rule) { rule_ = std::move(rule); }

  const std::vector<OptionSpec>& specs() const { return specs_; }
  const std::function<void()>& rule() const { return rule_; }

 private:
  OptionSpec& add(OptionSpec spec) {
    spec.group = heading_;
    return specs_.emplace_back(std::move(spec));
  }

  std::string heading_ = "Options";
  std::vector<OptionSpec> specs_;
  std::function<void()> rule_;
};

using BackendLoader = std::function<Backend&(const std::string& name)>;

struct Report;

/// A command that takes the words of another program, and what it asks of a command of ours.
struct AskedBy {
  std::vector<std::string> words;                          // to ask for it, in place of argv
  std::vector<std::string> remarks;                        // on how it was asked for
  void (*print)(std::ostream& out, const Report& report);  // in place of the table
};

/// The process that a command runs in.
struct Context {
  std::vector<std::string> argv;
  Terminal terminal;
  const ProcessClock& clock;
  const std::atomic<int>& stop;  // not 0: the signal that asks for an early end
  BackendLoader load = load_backend;
  std::optional<AskedBy> asked_by{};
};

/// The action that a command line asks for. Throws what exit_code_of() maps
/// (bench/cli/process.h).
using Action = std::function<ExitCode(const Context&)>;

struct Command {
  std::string name;
  std::string help;
  std::string examples;
  /// Adds its options; the action reads what they set.
  std::function<Action(Options&)> declare;
  std::vector<Command> commands;  // each is the word after this one's name
  /// For a command with the words of another program: the words after its name, as this parser
  /// reads them. Throws std::invalid_argument.
  std::vector<std::string> (*spelled_out)(const std::vector<std::string>& words) = nullptr;
};

/// A command whose options fill a `Form`.
template <class Form>
Command make_command(const std::string& name, const std::string& help, const std::string& examples,
                     void (*declare)(Options&, Form&),
                     ExitCode (*run)(const Form&, const Context&)) {
  const auto declare_and_bind = [declare, run](Options& options) -> Action {
    const auto form = std::make_shared<Form>();
    declare(options, *form);
    return [form, run](const Context& context) { return run(*form, context); };
  };
  return {name, help, examples, declare_and_bind, {}, nullptr};
}

/// A command that is nothing without one of `commands`, which have the same examples. `which`: what
/// its refusal lists, such as "add or list".
Command make_group(const std::string& name, const std::string& help, const std::string& examples,
                   const std::string& which, std::vector<Command> commands);

/// The action of the command that is named, with its options set; of `program` itself where one of
/// its own options is given, or no command; or one that prints help. `arguments` begins with the
/// name of the program. Throws std::invalid_argument with one line that says what was wrong and
/// what would be right.
Action parse_command_line(const Command& program, const std::vector<std::string>& arguments);

/// The options of a command that are shown, for completion and the manual; not to be set.
std::vector<OptionSpec> options_of(const Command& command);

}  // namespace nearmetal
