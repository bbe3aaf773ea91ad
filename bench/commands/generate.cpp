#include "bench/commands/generate.h"

#include "bench/cli/build_info.h"
#include "bench/commands/completion.h"

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

void print_options(std::ostream& out, const CommandText& command) {
  for (const OptionText& option : command.options) {
    out << ".TP\n";
    for (size_t i = 0; i < option.names.size(); ++i) {
      out << (i > 0 ? ", " : "") << "\\fB" << roff(option.names[i]) << "\\fR";
    }
    if (!option.value.empty()) {
      out << (option.names.empty() ? "" : " ") << "\\fI" << roff(option.value) << "\\fR";
    }
    out << '\n' << roff(option.help) << '\n';
  }
}

void print_footer(std::ostream& out, const CommandText& command) {
  if (command.footer.empty()) return;
  out << ".PP\n.nf\n"
      << roff(command.footer.substr(command.footer.find_first_not_of('\n'))) << "\n.fi\n";
}

void print_command(std::ostream& out, const std::string& name, const CommandText& command) {
  out << ".SS " << roff(name) << '\n' << roff(command.help) << ".\n";
  print_options(out, command);
  print_footer(out, command);
  for (const CommandText& inner : command.commands) {
    print_command(out, name + " " + inner.name, inner);
  }
}

void print_manual(std::ostream& out, const CommandText& program) {
  out << ".TH NEARMETAL 1 \"\" \"nearmetal " << roff(build_info().version) << "\"\n"
      << ".SH NAME\nnearmetal \\- trains a real ResNet and reports how fast\n"
      << ".SH SYNOPSIS\n\\fBnearmetal\\fR \\fICOMMAND\\fR [\\fIOPTION\\fR...]\n"
      << ".SH DESCRIPTION\n"
      << roff(program.help) << '\n';
  print_options(out, program);
  print_footer(out, program);
  out << ".SH COMMANDS\n";
  for (const CommandText& command : program.commands) print_command(out, command.name, command);
}

}  // namespace

ExitCode cmd_generate(const std::string& form, const CommandText& program,
                      const Terminal& terminal) {
  if (form == "bash") {
    print_bash_completion(terminal.out, program);
  } else if (form == "zsh") {
    print_zsh_completion(terminal.out, program);
  } else if (form == "fish") {
    print_fish_completion(terminal.out, program);
  } else {
    print_manual(terminal.out, program);
  }
  return ExitCode::ok;
}

}  // namespace nearmetal
