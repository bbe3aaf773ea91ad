#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "bench/cli/run_request.h"
#include "bench/run/defaults.h"
#include "reports/document/settings.h"
#include "reports/json/json.h"
#include "tests/support/parse_options.h"

namespace nearmetal {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::Not;

RunRequest asked_again(const RunConfig& config) {
  const std::vector<std::string> arguments =
      run_arguments(repeated_workload(config));  // the first is "run"
  return parse_run_flags({arguments.begin() + 1, arguments.end()});
}

// The configuration that a run records: everything settled.
RunConfig resolved(RunConfig config, Device device) {
  fill_defaults(config, device);
  return config;
}

void expect_same_work(const RunConfig& config) {
  const RunRequest request = asked_again(config);
  RunConfig again = request.config;
  fill_defaults(again, config.device);
  EXPECT_NO_THROW(check_settings({again, request.given}));
  EXPECT_EQ(config_sha256(again), config_sha256(config));
}

TEST(RunArguments, AskForTheSameWork) {
  for (const Device device : {Device::cpu, Device::cuda}) {
    RunConfig config;
    config.device = device;
    expect_same_work(resolved(config, device));
    config.model = "resnet101";
    config.precision = Precision::bf16;
    config.batch = 24;
    config.image_size = 160;
    config.classes = 10;
    config.duration_seconds = 0.1 + 0.2;
    config.warmup = 7;
    config.learning_rate = 0.1 / 3;
    config.momentum = 0.875;
    config.weight_decay = 5e-5;
    config.zero_init = true;
    config.bind = Bind::off;
    config.gradient_type = GradientType::fp16;
    config.loss_scale.reset();
    config.seed = 42;
    config.verify = true;
    config.profile = true;
    expect_same_work(resolved(config, device));
  }
}

TEST(RunArguments, AskForWhatOneDeviceTakes) {
  RunConfig gpu;
  gpu.device = Device::cuda;
  gpu.gpu = 3;
  gpu.input = Input::pinned;
  gpu.launch = LaunchMode::stream;
  gpu.all_reduce = AllReduceKind::hierarchical;
  gpu.loss_scale = LossScale{65536, true};
  gpu.steps = 50;
  gpu.forward_only = true;
  RunConfig settled_gpu = resolved(gpu, Device::cuda);
  settled_gpu.duration_seconds = RunConfig{}.duration_seconds;
  expect_same_work(settled_gpu);
  RunConfig cpu;
  cpu.device = Device::cpu;
  cpu.threads = 2;
  expect_same_work(resolved(cpu, Device::cpu));
}

TEST(RunArguments, LeaveOutFilesOfTheOtherMachine) {
  RunConfig config = resolved({}, Device::cpu);
  config.output = "/etc/passwd";
  config.plan_cache = "/root/evil.json";
  config.plans = "elsewhere.json";
  config.force = true;
  for (const std::string& argument : run_arguments(repeated_workload(config))) {
    EXPECT_THAT(argument, Not(HasSubstr("/")));
    EXPECT_THAT(argument, Not(HasSubstr("force")));
  }
}

// Each value is one argument with its flag: it can never be read as another option.
TEST(RunArguments, HostileTextStaysAValueAndIsRefused) {
  for (const char* text : {"--force", "; rm -rf /", "$(reboot)", "resnet50 --output x", ""}) {
    RunConfig config = resolved({}, Device::cpu);
    config.model = text;
    EXPECT_THAT(run_arguments(repeated_workload(config)), Contains("--model=" + std::string(text)));
    EXPECT_THROW(asked_again(config), std::invalid_argument) << text;
  }
  RunConfig config = resolved({}, Device::cuda);
  config.loss_scale = LossScale{7, true};
  EXPECT_THROW(run_arguments(repeated_workload(config)), std::invalid_argument);
}

}  // namespace
}  // namespace nearmetal
