#include <algorithm>
#include <array>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "base/text.h"
#include "bench/cli/process.h"
#include "bench/commands/program.h"
#include "bench/tf_cnn_benchmarks/flags.h"

namespace nearmetal {
namespace {
// The words that a value such as "N|auto" may be, of which those in capitals stand for others, and
// what else the option knows.
std::vector<std::string> choices(const OptionSpec& option) {
  std::vector<std::string> words;
  if (option.words != nullptr) words = option.words();
  for (const std::string& word : split(value_of(option), "|")) {
    const bool stands_for_others =
        word.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-") != word.npos;
    if (!word.empty() && !stands_for_others) words.push_back(word);
  }
  return words;
}

bool is_path(const OptionSpec& option) {
  return std::ranges::any_of(
      std::array{"FILE", "FOLDER", "LAYOUT", "REPORT"},
      [&](const char* name) { return value_of(option).find(name) != std::string::npos; });
}

std::string spaced_choices(const OptionSpec& option) { return joined(choices(option), " "); }

// Within single quotes of bash and zsh.
std::string single_quoted(const std::string& text) {
  return "'" + replaced(text, "'", "'\\''") + "'";
}

std::vector<std::string> words_of(const Command& command, const std::vector<OptionSpec>& options) {
  std::vector<std::string> words = transformed(command.commands, &Command::name);
  for (const OptionSpec& option : options) {
    std::ranges::copy(is_argument(option) ? choices(option) : flags_of(option),
                      std::back_inserter(words));
  }
  return words;
}

// A command of two words, such as `baseline add`, offers what both take, each once.
std::vector<OptionSpec> all_options(const Command& command) {
  std::vector<OptionSpec> options = options_of(command);
  for (const Command& inner : command.commands) {
    for (const OptionSpec& option : options_of(inner)) {
      const bool is_new = std::ranges::none_of(
          options, [&](const auto& known) { return flags_of(known) == flags_of(option); });
      if (is_new) options.push_back(option);
    }
  }
  return options;
}

void print_bash_values(std::ostream& out, const Command& command) {
  for (const OptionSpec& option : all_options(command)) {
    if (is_argument(option) || value_of(option).empty()) continue;
    const std::vector<std::string> places =
        transformed(flags_of(option), [&](const auto& flag) { return command.name + "/" + flag; });
    out << "    " << joined(places, " | ") << ") words=" << single_quoted(spaced_choices(option));
    if (is_path(option)) out << " files=1";
    out << " ;;\n";
  }
}

void print_bash_words(std::ostream& out, const Command& command) {
  const std::vector<OptionSpec> options = all_options(command);
  out << "        " << command.name
      << ") words=" << single_quoted(joined(words_of(command, options), " "));
  // Baselines are folders, of which there may be others tomorrow.
  if (std::ranges::any_of(options, &OptionSpec::baselines)) out << " baselines=1";
  out << " ;;\n";
}

// The action of zsh's _arguments for a value.
std::string zsh_action(const OptionSpec& option) {
  const std::string words = spaced_choices(option);
  if (option.baselines) return "{_files; compadd -- baselines/*(N/\\:t)}";
  if (is_path(option)) return words.empty() ? "_files" : "{_files; compadd " + words + "}";
  return words.empty() ? "" : "(" + words + ")";
}

// 'name[help]:value:action', an argument of _arguments.
std::string zsh_option(const OptionSpec& option) {
  const std::string help = escaped(option.help, "[]:\\");
  const std::string value = value_of(option);
  if (is_argument(option)) return single_quoted("*:" + help + ":" + zsh_action(option));
  std::vector<std::string> texts;
  for (const std::string& name : flags_of(option)) {
    const std::string text = value.empty()
                                 ? name + "[" + help + "]"
                                 : name + (name.starts_with("--") ? "=" : "") + "[" + help +
                                       "]:" + escaped(value, ":\\") + ":" + zsh_action(option);
    texts.push_back(single_quoted(text));
  }
  return joined(texts, " ");
}

// What `options` offer where the condition holds.
void print_fish(std::ostream& out, const std::string& condition, const std::string& options,
                const std::string& help) {
  out << "complete -c nearmetal -n " << single_quoted(condition) << options << " -d '"
      << escaped(help, "'\\") << "'\n";
}

void print_fish_argument(std::ostream& out, const Command& command, const OptionSpec& option) {
  const char* baselines = option.baselines ? "(command ls baselines 2>/dev/null)" : "";
  std::string condition = "__nearmetal_within " + command.name;
  // Of a command of two words both are there.
  if (!command.commands.empty()) condition += "; and not __nearmetal_behind " + command.name;
  const char* files = is_path(option) || option.baselines ? " -F" : "";
  print_fish(out, condition, files + (" -a " + single_quoted(spaced_choices(option) + baselines)),
             option.help);
}

void print_fish_option(std::ostream& out, const std::string& condition, const OptionSpec& option) {
  std::string options;
  for (const std::string& name : flags_of(option)) {
    options += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
  }
  if (!value_of(option).empty()) options += is_path(option) ? " -r -F" : " -x";
  if (!choices(option).empty()) options += " -a '" + spaced_choices(option) + "'";
  print_fish(out, condition, options, option.help);
}

void print_bash_completion(std::ostream& out, const Command& program) {
  out << R"(# bash completion of nearmetal
_nearmetal() {
  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} command= words= files= baselines= i
  for ((i = 1; i < COMP_CWORD; ++i)); do
    if [[ ${COMP_WORDS[i]} != -* ]]; then
      command=${COMP_WORDS[i]}
      break
    fi
  done
  # Bash takes --option=value apart at the =.
  if [[ $word == = ]]; then
    word=
  elif [[ $before == = ]]; then
    before=${COMP_WORDS[COMP_CWORD-2]}
  fi
  case $command/$before in
)";
  for (const Command& command : program.commands) print_bash_values(out, command);
  out << R"(    *)
      files=1
      case $command in
        '') files= words=)"
      << single_quoted(joined(words_of(program, options_of(program)), " ")) << " ;;\n";
  for (const Command& command : program.commands) print_bash_words(out, command);
  out << R"(      esac
      ;;
  esac
  if [[ -n $baselines ]]; then
    for i in baselines/*/; do
      if [[ -d $i ]]; then i=${i%/} words+=" ${i##*/}"; fi
    done
  fi
  # Names of files come from bash where nothing else fits.
  if [[ -z $files ]]; then compopt +o default; fi
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
}
complete -o default -F _nearmetal nearmetal
)";
}

void print_zsh_completion(std::ostream& out, const Command& program) {
  out << "#compdef nearmetal\n# zsh completion of nearmetal\n_nearmetal() {\n  local -a "
         "commands=(\n";
  for (const Command& command : program.commands) {
    out << "    " << single_quoted(command.name + ":" + escaped(command.help, ":\\")) << '\n';
  }
  out << R"(  )
  local at=2
  while ((at < CURRENT)) && [[ $words[at] == -* ]]; do ((++at)); done
  if ((CURRENT == at)); then
    _describe command commands
    _arguments)";
  for (const OptionSpec& option : options_of(program)) out << ' ' << zsh_option(option);
  out << R"(
    return
  fi
  local command=$words[at]
  shift $((at - 1)) words
  ((CURRENT -= at - 1))
  case $command in
)";
  for (const Command& command : program.commands) {
    out << "    " << command.name << ")\n      _arguments";
    if (!command.commands.empty()) {
      out << " \\\n        '1:command:("
          << joined(transformed(command.commands, &Command::name), " ") << ")'";
    }
    for (const OptionSpec& option : all_options(command)) {
      out << " \\\n        " << zsh_option(option);
    }
    out << "\n      ;;\n";
  }
  out << "  esac\n}\n_nearmetal \"$@\"\n";
}

void print_fish_completion(std::ostream& out, const Command& program) {
  out << R"(# fish completion of nearmetal
function __nearmetal_words
    string match -v -- '-*' (commandline -opc)[2..-1]
end
# Whether the first word is this one.
function __nearmetal_within
    set -l words (__nearmetal_words)
    test "$words[1]" = "$argv"
end
# Whether these are all words so far.
function __nearmetal_behind
    set -l words (__nearmetal_words)
    test "$words" = "$argv"
end
complete -c nearmetal -f
)";
  for (const OptionSpec& option : options_of(program)) {
    print_fish_option(out, "__nearmetal_behind", option);
  }
  for (const Command& command : program.commands) {
    print_fish(out, "__nearmetal_behind", " -a " + command.name, command.help);
    for (const Command& inner : command.commands) {
      print_fish(out, "__nearmetal_behind " + command.name, " -a " + inner.name, inner.help);
    }
    for (const OptionSpec& option : all_options(command)) {
      if (is_argument(option)) {
        print_fish_argument(out, command, option);
      } else {
        print_fish_option(out, "__nearmetal_within " + command.name, option);
      }
    }
  }
}

// Text that means itself in roff: no escapes, hyphens that can be copied, no requests.
std::string roff(const std::string& text) {
  std::string result = "\n" + replaced(replaced(text, "\\", "\\e"), "-", "\\-");
  for (const std::string request : {"\n.", "\n'"}) {
    result = replaced(result, request, "\n\\&" + request.substr(1));
  }
  return result.substr(1);
}

void print_options(std::ostream& out, const Command& command) {
  for (const OptionSpec& option : options_of(command)) {
    out << ".TP\n";
    const std::vector<std::string> flags = transformed(
        flags_of(option), [](const auto& flag) { return "\\fB" + roff(flag) + "\\fR"; });
    out << joined(flags);
    if (!value_of(option).empty()) {
      out << (flags.empty() ? "" : " ") << "\\fI" << replaced(roff(value_of(option)), "|", "|\\:")
          << "\\fR";
    }
    out << '\n' << roff(option.help) << '\n';
  }
}

// The help has them behind a line that names the command.
std::string examples_of(const Command& command) {
  return command.examples.substr(command.examples.find_first_not_of('\n'));
}

void print_examples(std::ostream& out, const Command& command) {
  if (command.examples.empty()) return;
  out << ".PP\n.nf\n" << roff(examples_of(command)) << "\n.fi\n";
}

void print_command(std::ostream& out, const std::string& name, const Command& command) {
  out << ".SS " << roff(name) << '\n' << roff(command.help) << ".\n";
  print_options(out, command);
  print_examples(out, command);
  for (const Command& inner : command.commands) {
    print_command(out, name + " " + inner.name, inner);
  }
}

void print_terms(std::ostream& out, const char* heading,
                 const std::vector<std::pair<std::string, std::string>>& terms) {
  out << ".SH " << heading << '\n';
  for (const auto& [term, text] : terms) {
    out << ".TP\n\\fB" << roff(term) << "\\fR\n" << roff(text) << '\n';
  }
}

void print_surroundings(std::ostream& out) {
  print_terms(
      out, "ENVIRONMENT",
      {{"CUDA_VISIBLE_DEVICES, CUDA_DEVICE_ORDER", "Visible GPUs and their order."},
       {"XDG_CACHE_HOME, HOME", "Folder of the plan cache, unless --plan-cache names a file."},
       {"COLUMNS", "Width of tables and lines; otherwise that of the terminal."},
       {"TMPDIR", "Folder in which each job of a sweep has a temporary folder while it runs."},
       {"NO_COLOR, TERM", "Colour is left out if NO_COLOR is set or the terminal is dumb."},
       {"PATH", "Folders that are searched for mpirun and nvidia-cuda-mps-control."},
       {"LD_LIBRARY_PATH", "Folders with libraries of CUDA, cuDNN, NCCL and Open MPI."},
       {"NCCL_*, OMPI_*, OMP_*",
        "Variables of these libraries; reports record those that are set."}});
  const auto term = [](const ExitMeaning& exit) {
    return std::pair(std::to_string(static_cast<int>(exit.code)), std::string(exit.meaning));
  };
  print_terms(out, "\"EXIT STATUS\"", transformed(exit_meanings(), term));
  print_terms(
      out, "FILES",
      {{"nearmetal-*.report.json", "Reports, in the current folder."},
       {"*.report.jsonl", "Journal of a sweep, beside its report, until the sweep is complete."},
       {"baselines/NAME/", "The runs of a baseline."},
       {"~/.cache/nearmetal/plans.json", "Kernels that were chosen, for later runs."},
       {"share/nearmetal/layouts/", "Layout files, which plan, sweep and doctor find by name."},
       {"share/doc/nearmetal/", "README.md, docs and licences."}});
  out << ".SH \"SEE ALSO\"\n\\fBmpirun\\fR(1), \\fBnvidia\\-smi\\fR(1), \\fBnumactl\\fR(8), "
         "\\fBjq\\fR(1)\n";
}

void print_manual(std::ostream& out, const Command& program) {
  out << ".TH NEARMETAL 1 \"\" \"nearmetal " << roff(build_info().version) << "\"\n"
      << ".SH NAME\nnearmetal \\- trains a real network and reports how fast the machine does it\n"
      << ".SH SYNOPSIS\n\\fBnearmetal\\fR \\fICOMMAND\\fR [\\fIOPTION\\fR...]\n"
      << ".SH DESCRIPTION\n"
      << roff(program.help) << '\n';
  print_options(out, program);
  print_examples(out, program);
  out << ".SH COMMANDS\n";
  for (const Command& command : program.commands) print_command(out, command.name, command);
  print_surroundings(out);
}

// Text as it is, within a cell of a table.
std::string cell(const std::string& text) { return replaced(escaped(text, "|<*"), "\n", " "); }

// A bar in code ends the cell all the same, unless it is escaped.
std::string code(const std::string& text) { return "`" + replaced(text, "|", "\\|") + "`"; }

std::string spelling(const OptionSpec& option) {
  const std::string flags = joined(flags_of(option)), value = value_of(option);
  return code(flags + (flags.empty() || value.empty() ? "" : " ") + value);
}

// The tables by heading, in the order in which these appear. Every command has --help.
std::vector<std::pair<std::string, std::string>> tables_of(const Command& command) {
  std::vector<std::pair<std::string, std::string>> tables;
  for (const OptionSpec& option : options_of(command)) {
    if (option.name == "-h,--help") continue;
    const std::string heading = is_argument(option) ? "Arguments" : option.group;
    value_beside(heading, tables) += "| " + spelling(option) + " | " + cell(option.help) + " |\n";
  }
  return tables;
}

void print_section(std::ostream& out, const std::string& name, const Command& command) {
  out << "\n## " << name << "\n\n" << command.help << ".\n";
  for (const auto& [heading, rows] : tables_of(command)) {
    out << "\n| " << heading << " | |\n| --- | --- |\n" << rows;
  }
  if (!command.examples.empty()) out << "\n```text\n" << examples_of(command) << "\n```\n";
  for (const Command& inner : command.commands) print_section(out, name + " " + inner.name, inner);
}

// A heading, the options in tables by group, and the examples of each command.
void print_option_reference(std::ostream& out, const Command& program) {
  out << "# Options\n\nWhat `nearmetal COMMAND --help` prints, for every command; this page is the "
         "output of `nearmetal\ngenerate markdown`. Values in brackets are the defaults.\n";
  for (const Command& command : program.commands) print_section(out, command.name, command);
}

constexpr const char* generate_examples = R"(
Examples:
  source <(nearmetal generate bash)                    completion in this shell, and in later ones:
  nearmetal generate bash | install -Dm644 /dev/stdin \
      ~/.local/share/bash-completion/completions/nearmetal
  nearmetal generate zsh > "${fpath[1]}/_nearmetal"
  nearmetal generate fish > ~/.config/fish/completions/nearmetal.fish
  nearmetal generate man | man -l -
  nearmetal generate markdown > options.md             all options, as a page
  nearmetal generate tf_cnn_benchmarks                 a table of its flags, in Markdown)";

struct Generated {
  const char* name;
  void (*print)(std::ostream& out, const Command& program);
};

constexpr Generated generated[] = {
    {"bash", print_bash_completion},
    {"zsh", print_zsh_completion},
    {"fish", print_fish_completion},
    {"man", print_manual},
    {"markdown", print_option_reference},
    {"tf_cnn_benchmarks", [](std::ostream& out, const Command&) { print_tf_flags(out); }},
};

void add_generate_options(Options& options, const Generated*& form) {
  const auto take = [&form](const std::string& text) {
    form = &find_row(generated, "generate", text);
  };
  options
      .value("FORM", joined(row_names(generated), "|"),
             "shell completion, manual page, page of options, table of flags", take)
      .required = true;
}

ExitCode run_generate(const Generated* const& form, const Context& context) {
  form->print(context.terminal.out, program());
  return ExitCode::ok;
}

}  // namespace

Command generate_command() {
  return make_command("generate", "Print shell completion, the manual page or the page of options",
                      generate_examples, add_generate_options, run_generate);
}

}  // namespace nearmetal
