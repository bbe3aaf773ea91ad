// `nearmetal run` in full, on a backend that follows a script.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

#include "bench/commands/run.h"
#include "reports/json/json.h"
#include "tests/support/fake_backend.h"
#include "tests/support/temporary_folder.h"

namespace nearmetal {

struct CmdRun : testing::Test {
  ExitCode run(std::vector<std::string> options) {
    std::vector<std::string> arguments = {
        "nearmetal", "run",      "--device", "cpu",
        "--model",   "resnet18", "--output", report_path.string()};
    arguments.insert(arguments.end(), options.begin(), options.end());
    out.str("");
    err.str("");
    return cmd_run(parse_command_line(arguments), clock, {.out = out, .err = err}, stop,
                   [this](const std::string& name) -> Backend& {
                     loaded = name;
                     return backend;
                   });
  }
  Report report() const { return read_report(report_path); }
  nearmetal::Run only_run() const { return report().arms.at(0).runs.at(0); }
  std::vector<std::string> warning_codes() const {
    std::vector<std::string> codes;
    for (const Warning& warning : only_run().warnings) codes.push_back(warning.code);
    return codes;
  }

  TemporaryFolder folder;
  std::filesystem::path report_path = folder / "run.report.json";
  Script script;
  FakeBackend backend{script};
  ProcessClock clock;
  std::atomic<int> stop = 0;
  std::ostringstream out;
  std::ostringstream err;
  std::string loaded;
};

}  // namespace nearmetal
