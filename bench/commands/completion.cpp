#include "bench/commands/completion.h"

#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

#include "base/text.h"

namespace nearmetal {
namespace {

// The words that a value such as "N|auto" may be, of which those in capitals stand for others, and
// what else the option knows.
std::vector<std::string> choices(const OptionSpec& option) {
  std::vector<std::string> words;
  if (option.words != nullptr) words = option.words();
  std::istringstream text(value_of(option));
  for (std::string word; std::getline(text, word, '|');) {
    if (word.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-") == std::string::npos) {
      words.push_back(word);
    }
  }
  return words;
}

bool is_path(const OptionSpec& option) {
  for (const char* name : {"FILE", "FOLDER", "LAYOUT", "REPORT"}) {
    if (value_of(option).find(name) != std::string::npos) return true;
  }
  return false;
}

// The text with a backslash before each of these characters.
std::string escaped(const std::string& text, const std::string& special) {
  std::string result;
  for (const char c : text) {
    if (special.find(c) != std::string::npos) result += '\\';
    result += c;
  }
  return result;
}

// Within single quotes of bash and zsh.
std::string single_quoted(const std::string& text) {
  return "'" + replaced(text, "'", "'\\''") + "'";
}

// The words that may follow `command`.
std::vector<std::string> words_of(const Command& command, const std::vector<OptionSpec>& options) {
  std::vector<std::string> words = names_of(command.commands);
  for (const OptionSpec& option : options) {
    for (const std::string& name : flags_of(option)) words.push_back(name);
    if (is_argument(option)) {
      for (const std::string& word : choices(option)) words.push_back(word);
    }
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
    std::vector<std::string> places;
    for (const std::string& name : flags_of(option)) places.push_back(command.name + "/" + name);
    out << "    " << joined(places, " | ")
        << ") words=" << single_quoted(joined(choices(option), " "));
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
  const std::string words = joined(choices(option), " ");
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

void print_fish_argument(std::ostream& out, const Command& command, const OptionSpec& option) {
  const std::string words = joined(choices(option), " ");
  const char* baselines = option.baselines ? "(command ls baselines 2>/dev/null)" : "";
  std::string condition = "__nearmetal_within " + command.name;
  // Of a command of two words both are there.
  if (!command.commands.empty()) condition += "; and not __nearmetal_behind " + command.name;
  out << "complete -c nearmetal -n " << single_quoted(condition);
  if (is_path(option) || option.baselines) out << " -F";
  out << " -a " << single_quoted(words + baselines) << " -d '" << escaped(option.help, "'\\")
      << "'\n";
}

void print_fish_option(std::ostream& out, const std::string& condition, const OptionSpec& option) {
  out << "complete -c nearmetal -n " << single_quoted(condition);
  for (const std::string& name : flags_of(option)) {
    out << (name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1));
  }
  if (!value_of(option).empty()) out << (is_path(option) ? " -r -F" : " -x");
  if (!choices(option).empty()) out << " -a '" << joined(choices(option), " ") << "'";
  out << " -d '" << escaped(option.help, "'\\") << "'\n";
}

void print_fish_word(std::ostream& out, const std::string& condition, const Command& command) {
  out << "complete -c nearmetal -n " << single_quoted(condition) << " -a " << command.name
      << " -d '" << escaped(command.help, "'\\") << "'\n";
}

}  // namespace

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
      out << " \\\n        '1:command:(" << joined(names_of(command.commands), " ") << ")'";
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
    print_fish_word(out, "__nearmetal_behind", command);
    for (const Command& inner : command.commands) {
      print_fish_word(out, "__nearmetal_behind " + command.name, inner);
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

}  // namespace nearmetal
