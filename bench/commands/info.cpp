#include <filesystem>

#include "bench/cli/build_info.h"
#include "bench/commands/program.h"
#include "comm/join_all_reduce.h"
#include "comm/launch/launch_plan_text.h"
#include "comm/layout/layout_json.h"
#include "models/errors.h"
#include "models/load_module.h"
#include "models/program.h"
#include "reports/compare/run_set.h"
#include "reports/document/finding.h"
#include "reports/formats/baseline_json.h"
#include "reports/formats/comparison_text.h"
#include "reports/json/json.h"
#include "reports/text/text_table.h"

namespace nearmetal {
namespace {

namespace fs = std::filesystem;

void print_backend(std::ostream& out, const std::string& name) {
  const std::string lead = "backend " + name + ": ";
  try {
    const DeviceInfo device = load_backend(name).describe(0);
    std::string text = device.name;
    for (const auto& [library, version] : device.libraries) text += ", " + library + ' ' + version;
    print_line(out, lead + text);
  } catch (const std::exception& error) {
    print_line(out, lead + "not usable: " + error.what());
  }
}

void print_exchange(std::ostream& out) {
  const std::string lead = "between GPUs: ";
  try {
    print_line(out, lead + load_nccl().version());
  } catch (const std::exception& error) {
    print_line(out, lead + "not usable: " + error.what());
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

struct SchemaForm {
  const Schema* schema = &schemas[0];
};

void add_schema_options(Options& options, SchemaForm& form) {
  options
      .value("NAME", "", with_default(joined(row_names(schemas)), form.schema->name),
             [&form](const std::string& text) { form.schema = &find_row(schemas, "schema", text); })
      .words = [] { return row_names(schemas); };
}

ExitCode run_schema(const SchemaForm& form, const Context& context) {
  context.terminal.out << form.schema->text();
  return ExitCode::ok;
}

struct ValidateForm {
  std::vector<std::string> paths;
};

void add_validate_options(Options& options, ValidateForm& form) {
  const auto take = [&form](const std::vector<std::string>& paths) { form.paths = paths; };
  options.values("FILE", "", "Reports, or folders of them", take).required = true;
}

// The files at `paths`; in place of a folder, its reports.
std::vector<fs::path> files_at(const std::vector<std::string>& paths) {
  std::vector<fs::path> files;
  std::error_code ignored;
  for (const std::string& path : paths) {
    if (!fs::is_directory(path, ignored)) {
      files.emplace_back(path);
      continue;
    }
    const std::vector<fs::path> below = reports_below(path);
    files.insert(files.end(), below.begin(), below.end());
  }
  return files;
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
    terminal.err << "nearmetal: " << printable(error.what()) << '\n';
    return false;
  }
}

ExitCode run_validate(const ValidateForm& form, const Context& context) {
  bool valid = true;
  for (const fs::path& file : files_at(form.paths)) {
    try {
      for (ReportText& text : report_texts(file)) {
        valid &= validate(std::move(text), context.terminal);
      }
    } catch (const InvalidReport& error) {
      context.terminal.err << "nearmetal: " << printable(error.what()) << '\n';
      valid = false;
    }
  }
  return valid ? ExitCode::ok : ExitCode::invalid_report;
}

}  // namespace

ExitCode print_version(const Terminal& terminal) {
  const Tool tool = build_info();
  terminal.out << "nearmetal " << tool.version << "\ncommit "
               << (tool.git_commit ? *tool.git_commit : "unknown: " + tool.git_commit.reason)
               << (tool.dirty && *tool.dirty ? " with local changes" : "") << "\nbuilt as "
               << tool.build_type << " by " << tool.compiler << '\n';
  for (const char* name : {"cpu", "cuda"}) print_backend(terminal.out, name);
  print_exchange(terminal.out);
  return ExitCode::ok;
}

Command schema_command() {
  return make_command("schema", "Print a JSON Schema", schema_examples, add_schema_options,
                      run_schema);
}

Command validate_command() {
  return make_command("validate", "Check that reports fit their schema and are consistent",
                      validate_examples, add_validate_options, run_validate);
}

}  // namespace nearmetal
