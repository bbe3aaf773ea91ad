#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "bench/cli/process.h"
#include "bench/commands/completion.h"
#include "bench/commands/program.h"
#include "bench/tf_cnn_benchmarks/flags.h"

namespace nearmetal {
namespace {

// Text that means itself in roff: no escapes, hyphens that can be copied, no requests.
std::string roff(const std::string& text) {
  std::string result;
  bool line_starts = true;
  for (const char c : text) {
    if (line_starts && (c == '.' || c == '\'')) result += "\\&";
    line_starts = c == '\n';
    if (c == '\\') {
      result += "\\e";
    } else if (c == '-') {
      result += "\\-";
    } else {
      result += c;
    }
  }
  return result;
}

void print_options(std::ostream& out, const Command& command) {
  for (const OptionSpec& option : options_of(command)) {
    out << ".TP\n";
    const std::vector<std::string> flags = flags_of(option);
    for (size_t i = 0; i < flags.size(); ++i) {
      out << (i > 0 ? ", " : "") << "\\fB" << roff(flags[i]) << "\\fR";
    }
    if (!value_of(option).empty()) {
      out << (flags.empty() ? "" : " ") << "\\fI" << roff(value_of(option)) << "\\fR";
    }
    out << '\n' << roff(option.help) << '\n';
  }
}

void print_examples(std::ostream& out, const Command& command) {
  if (command.examples.empty()) return;
  out << ".PP\n.nf\n"
      << roff(command.examples.substr(command.examples.find_first_not_of('\n'))) << "\n.fi\n";
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
       {"PATH", "Folders that are searched for mpirun, nvidia-cuda-mps-control and gnuplot."},
       {"LD_LIBRARY_PATH", "Folders with libraries of CUDA, cuDNN, NCCL and Open MPI."},
       {"NCCL_*, OMPI_*, OMP_*",
        "Variables of these libraries; reports record those that are set."}});
  std::vector<std::pair<std::string, std::string>> codes;
  for (const auto& [code, meaning] : exit_meanings()) {
    codes.emplace_back(std::to_string(static_cast<int>(code)), meaning);
  }
  print_terms(out, "\"EXIT STATUS\"", codes);
  print_terms(
      out, "FILES",
      {{"nearmetal-*.report.json", "Reports, in the current folder."},
       {"*.report.jsonl", "Journal of a sweep, beside its report, until the sweep is complete."},
       {"baselines/NAME/", "The runs of a baseline."},
       {"~/.cache/nearmetal/plans.json", "Kernels that were chosen, for later runs."},
       {"share/nearmetal/layouts/",
        "Layout files, which plan, sweep and doctor find by "
        "name."},
       {"share/doc/nearmetal/", "README.md, docs and licences."}});
  out << ".SH \"SEE ALSO\"\n\\fBmpirun\\fR(1), \\fBnvidia\\-smi\\fR(1), "
         "\\fBnumactl\\fR(8), \\fBgnuplot\\fR(1), \\fBjq\\fR(1)\n";
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
std::string cell(std::string text) {
  for (const std::string special : {"|", "<", "*"}) text = replaced(text, special, "\\" + special);
  return replaced(text, "\n", " ");
}

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
    auto table = std::ranges::find(tables, heading, &std::pair<std::string, std::string>::first);
    if (table == tables.end()) table = tables.insert(tables.end(), {heading, ""});
    table->second += "| " + spelling(option) + " | " + cell(option.help) + " |\n";
  }
  return tables;
}

void print_option_tables(std::ostream& out, const Command& command) {
  for (const auto& [heading, rows] : tables_of(command)) {
    out << "\n| " << heading << " | |\n| --- | --- |\n" << rows;
  }
}

// The help has them behind a line that names them.
void print_code_block(std::ostream& out, const Command& command) {
  const size_t first = command.examples.find_first_not_of('\n');
  if (first == std::string::npos) return;
  out << "\n```text\n" << command.examples.substr(first) << "\n```\n";
}

void print_section(std::ostream& out, const std::string& name, const Command& command) {
  out << "\n## " << name << "\n\n" << command.help << ".\n";
  print_option_tables(out, command);
  print_code_block(out, command);
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
