#include "bench/commands/option_reference.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "bench/cli/command_line.h"

namespace nearmetal {
namespace {

// Text as it is, within a cell of a table.
std::string cell(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == '|' || c == '<' || c == '*') result += '\\';
    result += c == '\n' ? ' ' : c;
  }
  return result;
}

// A bar in code ends the cell all the same, unless it is escaped.
std::string code(const std::string& text) {
  std::string result = "`";
  for (const char c : text) {
    if (c == '|') result += '\\';
    result += c;
  }
  return result + "`";
}

std::string spelling(const OptionSpec& option) {
  std::string names;
  for (const std::string& flag : flags_of(option)) names += (names.empty() ? "" : ", ") + flag;
  const std::string value = value_of(option);
  if (!value.empty()) names += (names.empty() ? "" : " ") + value;
  return code(names);
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

void print_tables(std::ostream& out, const Command& command) {
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
  print_tables(out, command);
  print_code_block(out, command);
  for (const Command& inner : command.commands) print_section(out, name + " " + inner.name, inner);
}

}  // namespace

void print_option_reference(std::ostream& out, const Command& program) {
  out << "# Options\n\nWhat `nearmetal COMMAND --help` prints, for every command; this page is the "
         "output of `nearmetal\ngenerate markdown`. Values in brackets are the defaults.\n";
  for (const Command& command : program.commands) print_section(out, command.name, command);
}

}  // namespace nearmetal
