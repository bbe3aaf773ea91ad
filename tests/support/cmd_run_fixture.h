// `nearmetal run` in full, on a backend that follows a script.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

#include "bench/cli/process.h"
#include "bench/commands/program.h"
#include "reports/json/json.h"
#include "reports/json/report_files.h"
#include "tests/support/fake_backend.h"
#include "tests/support/parse_options.h"
#include "tests/support/temporary_folder.h"

namespace nearmetal {

struct CmdRun : testing::Test {
  ExitCode run(std::vector<std::string> options) {
    std::vector<std::string> flags = {"--device", "cpu",      "--model",
                                      "resnet18", "--output", report_path.string()};
    flags.insert(flags.end(), options.begin(), options.end());
    return run(flags, backend);
  }
  ExitCode run(const std::vector<std::string>& flags, Backend& on) {
    out.str("");
    err.str("");
    std::vector<std::string> argv = {"nearmetal", "run"};
    argv.insert(argv.end(), flags.begin(), flags.end());
    return run_job(parse_run_flags(flags), {.argv = argv,
                                            .terminal = {.out = out, .err = err},
                                            .clock = clock,
                                            .stop = stop,
                                            .load = [&](const std::string& name) -> Backend& {
                                              loaded = name;
                                              return on;
                                            }});
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
