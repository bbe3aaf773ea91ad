#include "bench/cli/run_request.h"

#include <stdexcept>

#include "bench/cli/parse_value.h"
#include "comm/layout/gpu_profiles.h"

namespace nearmetal {
namespace {

// "1:25,75": the second of two parts, with three quarters of the multiprocessors.
GpuPart gpu_part_of(const std::string& text) {
  const char* flag = "--gpu-part";
  const size_t colon = text.find(':');
  if (colon == text.npos) {
    throw std::invalid_argument("--gpu-part: '" + text + "' is no INDEX:PERCENT,PERCENT,...");
  }
  GpuPart part;
  for (const std::string& percent : comma_separated(text.substr(colon + 1))) {
    part.percents.push_back(parse_number<int64_t>(flag, percent, {1, 100}));
  }
  const double last = static_cast<double>(part.percents.size()) - 1;
  part.index = parse_number<int64_t>(flag, text.substr(0, colon), {0, last});
  return part;
}

}  // namespace

void add_expect_options(Options& options, Expected& expected) {
  using Text = std::optional<std::string>;
  const auto add = [&](const char* flag, const char* value, const char* help, Text& member,
                       bool (*takes)(const std::string& text), const char* form) {
    const auto set = [flag, takes, form, &member](const std::string& text) {
      if (!takes(text)) throw std::invalid_argument(std::string(flag) + " takes " + form);
      member = text;
    };
    options.value(flag, value, help, set).group = "Evidence and monitor";
  };
  const auto takes_any = [](const std::string&) { return true; };
  const auto takes_vgpu = [](const std::string& text) {
    return parse_vgpu_profile(text).has_value();
  };
  add("--expect-gpu", "NAME", "refuse GPUs without this in their name", expected.gpu, takes_any,
      "");
  add("--expect-uuid", "UUID", "refuse GPUs and MIG devices with another", expected.uuid, takes_any,
      "");
  add("--expect-mig", "PROFILE", "refuse what is no MIG device of this profile, such as 1g.18gb",
      expected.mig, is_mig_profile, "a MIG profile such as 1g.18gb");
  add("--expect-vgpu", "PROFILE", "refuse what is no vGPU of this profile, such as A100-40C",
      expected.vgpu, takes_vgpu, "the profile of a vGPU, such as A100-40C or A100-3-20C");
  const auto take_environment = [&expected](const std::string& text) {
    expected.environment = parse_choice<MachineKind>("--expect-environment", text);
  };
  options
      .value("--expect-environment", "KIND", "refuse machines that look like another",
             take_environment)
      .group = "Evidence and monitor";
}

void add_conducted_options(Options& options, RunRequest& request) {
  options.toggle("--conducted", request.conducted, "").hidden = true;
  options.value("--arm", "", "", [&](const std::string& text) { request.arm = text; }).hidden =
      true;
  options.number("--sharers", "", request.sharers, {1, 1e6}, "").hidden = true;
  options.toggle("--through-mps", request.through_mps, "").hidden = true;
  options
      .value("--gpu-part", "", "",
             [&](const std::string& text) { request.gpu_part = gpu_part_of(text); })
      .hidden = true;
}

}  // namespace nearmetal
