#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include "bench/cli/command_options.h"
#include "bench/cli/parse_value.h"
#include "comm/layout/mig_profiles.h"
#include "comm/layout/vgpu_profile.h"

namespace nearmetal {
namespace {

constexpr const char* evidence = "Evidence and monitor";

using Takes = bool (*)(const std::string& text);

void add_expectation(CLI::App& command, const char* flag, const char* type, const char* help,
                     std::optional<std::string>& value, Takes takes, const char* form) {
  command
      .add_option_function<std::string>(
          flag,
          [&value, takes, flag, form](const std::string& text) {
            if (!takes(text)) throw std::invalid_argument(std::string(flag) + " takes " + form);
            value = text;
          },
          help)
      ->option_text(type)
      ->group(evidence);
}

}  // namespace

void add_expect_options(CLI::App& command, Expected& expected) {
  command.add_option("--expect-gpu", expected.gpu, "refuse GPUs without this in their name")
      ->option_text("NAME")
      ->group(evidence);
  command.add_option("--expect-uuid", expected.uuid, "refuse GPUs and MIG devices with another")
      ->option_text("UUID")
      ->group(evidence);
  add_expectation(command, "--expect-mig", "PROFILE",
                  "refuse what is no MIG device of this profile, such as 1g.18gb", expected.mig,
                  is_mig_profile, "a MIG profile such as 1g.18gb");
  add_expectation(
      command, "--expect-vgpu", "PROFILE",
      "refuse what is no vGPU of this profile, such as A100-40C", expected.vgpu,
      [](const std::string& text) { return parse_vgpu_profile(text).has_value(); },
      "the profile of a vGPU, such as A100-40C or A100-3-20C");
  command
      .add_option_function<std::string>(
          "--expect-environment",
          [&expected](const std::string& text) {
            expected.environment = parse_choice<MachineKind>("--expect-environment", text);
          },
          "refuse machines that look like another")
      ->option_text("KIND")
      ->group(evidence);
}

}  // namespace nearmetal
