#include "bench/commands/info.h"

#include <filesystem>

#include "bench/cli/build_info.h"
#include "comm/nccl_library.h"
#include "models/backend.h"
#include "models/errors.h"
#include "reports/compare/run_set.h"
#include "reports/json/json.h"
#include "reports/json/schema.h"

namespace nearmetal {
namespace {

namespace fs = std::filesystem;

void print_backend(std::ostream& out, const std::string& name) {
  out << "backend " << name << ": ";
  try {
    const DeviceInfo device = load_backend(name).describe(0);
    out << device.name;
    for (const auto& [library, version] : device.libraries)
      out << ", " << library << ' ' << version;
    out << '\n';
  } catch (const std::exception& error) {
    out << "not usable: " << error.what() << '\n';
  }
}

void print_exchange(std::ostream& out) {
  out << "between GPUs: ";
  try {
    out << load_nccl().version() << '\n';
  } catch (const std::exception& error) {
    out << "not usable: " << error.what() << '\n';
  }
}

std::string_view schema_text(const std::string& name) {
  if (name == "comparison") return comparison_schema();
  if (name == "doctor") return doctor_schema();
  if (name == "layout") return layout_schema();
  if (name == "plan") return plan_schema();
  return report_schema();
}

// Of a folder its reports.
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

}  // namespace

ExitCode cmd_version(const Terminal& terminal) {
  const Tool tool = build_info();
  terminal.out << "nearmetal " << tool.version << "\ncommit "
               << (tool.git_commit ? *tool.git_commit : "unknown: " + tool.git_commit.reason)
               << (tool.dirty && *tool.dirty ? " with local changes" : "") << "\nbuilt as "
               << tool.build_type << " by " << tool.compiler << '\n';
  for (const char* name : {"cpu", "cuda"}) print_backend(terminal.out, name);
  print_exchange(terminal.out);
  return ExitCode::ok;
}

ExitCode cmd_schema(const std::string& name, const Terminal& terminal) {
  terminal.out << schema_text(name);
  return ExitCode::ok;
}

ExitCode cmd_validate(const std::vector<std::string>& paths, const Terminal& terminal) {
  ExitCode code = ExitCode::ok;
  for (const fs::path& file : files_at(paths)) {
    try {
      const Report report = read_report(file);
      terminal.out << file.string() << ": valid, schema " << report.schema_version << ", "
                   << to_string(report.status) << '\n';
    } catch (const InvalidReport& error) {
      terminal.err << "nearmetal: " << error.what() << '\n';
      code = ExitCode::invalid_report;
    }
  }
  return code;
}

}  // namespace nearmetal
