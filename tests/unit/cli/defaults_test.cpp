#include "bench/run/defaults.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "bench/cli/run_request.h"
#include "bench/run/prepare_device.h"
#include "bench/run/trainer.h"
#include "reports/json/json.h"
#include "tests/support/refusal.h"
#include "tests/support/temporary_folder.h"

namespace nearmetal {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(ChooseDevice, WithoutATraceItIsTheCpu) {
  const TemporaryFolder root;
  root.write("dev/null", "");
  root.write("dev/nvidia-uvm", "");  // a module that loads without a device
  root.write("sys/bus/pci/devices/0000:00:02.0/vendor", "0x1af4\n");
  root.write("sys/bus/pci/devices/0000:00:02.0/class", "0x030000\n");
  root.write("sys/bus/pci/devices/0000:00:03.0/vendor", "0x10de\n");  // an NVIDIA sound device
  root.write("sys/bus/pci/devices/0000:00:03.0/class", "0x040300\n");
  const auto [device, reason] = choose_device(Device::automatic, root.path());
  EXPECT_EQ(device, Device::cpu);
  EXPECT_EQ(reason, "no NVIDIA device or driver is visible");
}

TEST(ChooseDevice, EachTraceMeansCuda) {
  for (const char* trace :
       {"dev/nvidia0", "dev/nvidia11", "dev/nvidiactl", "dev/dxg", "proc/driver/nvidia/version"}) {
    const TemporaryFolder root;
    root.write(trace, "");
    const auto [device, reason] = choose_device(Device::automatic, root.path());
    EXPECT_EQ(device, Device::cuda) << trace;
    EXPECT_THAT(reason, HasSubstr(trace));
  }
}

TEST(ChooseDevice, ADisplayControllerOnTheBusMeansCudaEvenWithoutADriver) {
  for (const char* kind : {"0x030000\n", "0x030200\n"}) {
    const TemporaryFolder root;
    root.write("sys/bus/pci/devices/0000:06:00.0/vendor", "0x10de\n");
    root.write("sys/bus/pci/devices/0000:06:00.0/class", kind);
    EXPECT_EQ(choose_device(Device::automatic, root.path()).first, Device::cuda) << kind;
  }
}

TEST(ChooseDevice, WhatIsAskedForIsTaken) {
  const TemporaryFolder root;
  root.write("dev/nvidia0", "");
  EXPECT_EQ(choose_device(Device::cpu, root.path()).first, Device::cpu);
  EXPECT_EQ(choose_device(Device::cuda, root / "empty").first, Device::cuda);
}

TEST(FillDefaults, Cuda) {
  RunConfig config;
  fill_defaults(config, Device::cuda);
  EXPECT_EQ(config.device, Device::cuda);
  EXPECT_EQ(config.precision, Precision::fp16);
  EXPECT_EQ(config.batch, 256);
  EXPECT_EQ(config.warmup, 120);
  EXPECT_EQ(config.launch, LaunchMode::graph);
  EXPECT_EQ(config.loss_scale, (LossScale{128, false}));
  EXPECT_DOUBLE_EQ(*config.learning_rate, 256.0 / 64 / 2048);
  EXPECT_NO_THROW(check_settings({config}));
}

TEST(FillDefaults, GradientsOfBranchesThatBeginAtZeroAreScaledMore) {
  const auto scale_of = [](int64_t batch) {
    RunConfig config;
    config.zero_init = true;
    config.batch = batch;
    fill_defaults(config, Device::cuda);
    return config.loss_scale->initial;
  };
  EXPECT_EQ(scale_of(256), 1024);
  EXPECT_EQ(scale_of(16), 1024);
  EXPECT_EQ(scale_of(4), 512);
  EXPECT_EQ(scale_of(65536), 2048) << "as without";
}

TEST(FillDefaults, Cpu) {
  RunConfig config;
  fill_defaults(config, Device::cpu);
  EXPECT_EQ(config.precision, Precision::fp32);
  EXPECT_EQ(config.batch, 16);
  EXPECT_EQ(config.warmup, 3);
  EXPECT_FALSE(config.launch);
  EXPECT_EQ(config.loss_scale->initial, 1);
  EXPECT_DOUBLE_EQ(*config.learning_rate, 16.0 / 64 / 2048);
  EXPECT_NO_THROW(check_settings({config}));
}

TEST(FillDefaults, EachNetworkHasItsCustomaryOptimizer) {
  RunConfig config;
  fill_defaults(config, Device::cuda);
  EXPECT_EQ(config.optimizer, Optimizer::sgd);
  EXPECT_EQ(config.weight_decay, 1e-4);
  config = RunConfig{};
  config.model = "vit_b_16";
  fill_defaults(config, Device::cuda);
  EXPECT_EQ(config.optimizer, Optimizer::adamw);
  EXPECT_EQ(config.weight_decay, 0.01);
  EXPECT_EQ(config.learning_rate, 5e-5);
  config = RunConfig{};
  config.model = "vit_b_16";
  config.optimizer = Optimizer::sgd;
  fill_defaults(config, Device::cuda);
  EXPECT_EQ(config.weight_decay, 1e-4);
  EXPECT_DOUBLE_EQ(*config.learning_rate, 256.0 / 64 / 768);
}

TEST(FillDefaults, SequencesAreOfNetworksThatReadThem) {
  RunConfig config;
  fill_defaults(config, Device::cuda);
  EXPECT_FALSE(config.sequence);
  config = RunConfig{};
  config.model = "bert_base";
  fill_defaults(config, Device::cuda);
  EXPECT_EQ(config.sequence, 384);
  EXPECT_EQ(config.batch, 32);
  EXPECT_EQ(config.optimizer, Optimizer::adamw);
  config = RunConfig{};
  config.model = "bert_base";
  fill_defaults(config, Device::cpu);
  EXPECT_EQ(config.batch, 4);
}

TEST(FillDefaults, WhatIsGivenStays) {
  RunConfig config;
  config.precision = Precision::bf16;
  config.batch = 7;
  config.learning_rate = 0.5;
  fill_defaults(config, Device::cuda);
  EXPECT_EQ(config.precision, Precision::bf16);
  EXPECT_EQ(config.batch, 7);
  EXPECT_EQ(config.learning_rate, 0.5);
  EXPECT_EQ(config.loss_scale->initial, 1) << "only fp16 is scaled";
}

TEST(FillDefaults, GradientsThatTravelInFp16AreScaled) {
  RunConfig config;
  config.gradient_type = GradientType::fp16;
  fill_defaults(config, Device::cpu);
  EXPECT_EQ(config.loss_scale, (LossScale{32, false}));
}

TEST(FillDefaults, LearningRateAndLossScaleWaitForTheBatch) {
  RunConfig config;
  config.batch = largest_that_fits;
  fill_defaults(config, Device::cuda);
  EXPECT_FALSE(config.learning_rate);
  EXPECT_FALSE(config.loss_scale);
  EXPECT_NO_THROW(check_settings({config}));
  config.batch = 1024;
  fill_defaults(config, Device::cuda);
  EXPECT_DOUBLE_EQ(*config.learning_rate, 1024.0 / 64 / 2048);
  EXPECT_EQ(config.loss_scale->initial, 256);
}

TEST(FillDefaults, FewFeaturesTakeALargerRateUpToALimit) {
  RunConfig config;
  config.model = "resnet20";
  config.batch = 16;
  fill_defaults(config, Device::cpu);
  EXPECT_DOUBLE_EQ(*config.learning_rate, 16.0 / 64 / 64);
  config.batch = 4096;
  config.learning_rate.reset();
  fill_defaults(config, Device::cpu);
  EXPECT_EQ(config.learning_rate, 0.1);
}

TEST(FillDefaults, TheLargestGradientsOfADeepNetworkStayWithinFp16) {
  for (const int64_t batch : {1, 4, 16, 256, 2656}) {
    RunConfig config;
    config.batch = batch;
    fill_defaults(config, Device::cuda);
    const double largest = 776 / std::sqrt(batch);  // of ResNet-152, as computed in fp32
    EXPECT_LT(config.loss_scale->initial * largest, 65504 / 4) << batch;
    EXPECT_EQ(std::exp2(std::round(std::log2(config.loss_scale->initial))),
              config.loss_scale->initial);
  }
}

struct CheckSettings : testing::Test {
  std::string refusal(Device device, std::initializer_list<const char*> given) {
    return refusal_of([&] {
      fill_defaults(config, device);
      check_settings({config, {given.begin(), given.end()}});
    });
  }
  RunConfig config;
};

TEST_F(CheckSettings, LaunchNeedsAGpu) {
  config.launch = LaunchMode::stream;
  EXPECT_THAT(refusal(Device::cpu, {"launch"}), HasSubstr("--launch"));
}
TEST_F(CheckSettings, HostInputNeedsAGpu) {
  for (const Input input : {Input::pinned, Input::pageable}) {
    config.input = input;
    EXPECT_THAT(refusal(Device::cpu, {"input"}), HasSubstr("--input"));
  }
}
TEST_F(CheckSettings, NcclAlgorithmNeedsAGpuAndAGraph) {
  EXPECT_THAT(refusal(Device::cpu, {"nccl_algorithm"}),
              HasSubstr("--nccl-algorithm is for GPUs; none is visible here"));
  EXPECT_THAT(refusal(Device::cpu, {"nccl_algorithm", "device"}),
              HasSubstr("is for GPUs; leave it out with --device cpu"));
  config.nccl_algorithm = NcclAlgorithm::ring;
  EXPECT_EQ(refusal(Device::cuda, {"nccl_algorithm"}), "");
  config.launch = LaunchMode::stream;
  EXPECT_THAT(refusal(Device::cuda, {"nccl_algorithm"}), HasSubstr("leave --launch stream out"));
}
TEST_F(CheckSettings, SumsByNcclAndMpiAreForGpus) {
  EXPECT_THAT(refusal(Device::cpu, {"all_reduce"}), HasSubstr("--all-reduce is for GPUs"));
  for (const AllReduceKind other :
       {AllReduceKind::automatic, AllReduceKind::hierarchical, AllReduceKind::host}) {
    config.all_reduce = other;
    config.nccl_algorithm = NcclAlgorithm::automatic;
    EXPECT_EQ(refusal(Device::cuda, {"all_reduce"}), "");
    config.nccl_algorithm = NcclAlgorithm::tree;
    EXPECT_THAT(refusal(Device::cuda, {"all_reduce", "nccl_algorithm"}),
                HasSubstr(std::string("leave --all-reduce ") + to_string(other) + " out"));
  }
}
TEST_F(CheckSettings, BatchAutoIsForGpus) {
  config.batch = largest_that_fits;
  EXPECT_EQ(refusal(Device::cuda, {"batch"}), "");
  EXPECT_THAT(refusal(Device::cpu, {"batch"}), HasSubstr("--batch auto is for GPUs"));
}
TEST(FlagsWithoutEffect, AreThoseOfOtherRanksAndOfTraining) {
  const Workload exchange{{}, {"batch", "bucket_mib", "gradient_type"}};
  EXPECT_THAT(flags_without_effect(exchange, 2), IsEmpty());
  EXPECT_THAT(flags_without_effect(exchange, 1),
              ElementsAre("--bucket-mib has no effect: there is one rank",
                          "--gradient-type has no effect: there is one rank"));
  Workload forward{{}, {"momentum", "learning_rate"}};
  EXPECT_THAT(flags_without_effect(forward, 1), IsEmpty());
  forward.config.forward_only = true;
  EXPECT_THAT(flags_without_effect(forward, 1),
              ElementsAre("--learning-rate has no effect: nothing is trained (--forward-only)",
                          "--momentum has no effect: nothing is trained (--forward-only)"));
}
TEST(FlagsWithoutEffect, ZeroInitIsOfResidualBranches) {
  Workload workload{{}, {"zero_init"}};
  workload.config.zero_init = true;
  EXPECT_THAT(flags_without_effect(workload, 1), IsEmpty());
  workload.config.model = "vgg16_bn";
  EXPECT_THAT(flags_without_effect(workload, 1),
              ElementsAre("--zero-init has no effect: vgg16_bn has no residual branch that ends in "
                          "a batch norm"));
}
TEST_F(CheckSettings, ThreadsAreOfTheCpu) {
  config.threads = 2;
  EXPECT_THAT(refusal(Device::cuda, {"threads"}), HasSubstr("--threads"));
}
TEST_F(CheckSettings, OneOfStepsAndDuration) {
  config.steps = 2;
  EXPECT_THAT(refusal(Device::cpu, {"steps", "duration_seconds"}), HasSubstr("one of them"));
}
TEST_F(CheckSettings, LossScaleIsForFp16) {
  config.loss_scale = LossScale{1, true};
  EXPECT_THAT(refusal(Device::cpu, {"loss_scale"}), HasSubstr("fp16"));
  config.gradient_type = GradientType::fp16;
  EXPECT_EQ(refusal(Device::cpu, {"loss_scale", "gradient_type"}), "");
}
TEST_F(CheckSettings, VerifyTrains) {
  config.verify = config.forward_only = true;
  EXPECT_THAT(refusal(Device::cpu, {"verify", "forward_only"}), HasSubstr("--forward-only"));
  config.forward_only = false;
  config.inference = true;
  EXPECT_THAT(refusal(Device::cpu, {"verify", "inference"}), HasSubstr("with --inference"));
}
TEST_F(CheckSettings, DigestTrainsAWholeNetwork) {
  config.digest = config.forward_only = true;
  EXPECT_THAT(refusal(Device::cpu, {"digest", "forward_only"}), HasSubstr("--digest trains"));
  config.forward_only = false;
  config.inference = true;
  EXPECT_THAT(refusal(Device::cpu, {"digest", "inference"}), HasSubstr("with --inference"));
  config.inference = false;
  EXPECT_EQ(refusal(Device::cpu, {"digest"}), "");
  config.precision = Precision::tf32;
  EXPECT_EQ(refusal(Device::cuda, {"digest"}), "");
  config.precision = Precision::fp32;
  EXPECT_THAT(refusal(Device::cuda, {"digest"}), HasSubstr("another --precision"));
  config.pipeline = 2;
  EXPECT_THAT(refusal(Device::cpu, {"digest", "pipeline"}), HasSubstr("out with --pipeline"));
}
TEST_F(CheckSettings, OneForwardPass) {
  config.inference = config.forward_only = true;
  EXPECT_THAT(refusal(Device::cpu, {"inference", "forward_only"}), HasSubstr("one of them"));
  config.forward_only = false;
  config.zero_init = true;
  EXPECT_THAT(refusal(Device::cpu, {"inference", "zero_init"}), HasSubstr("--zero-init"));
}
TEST_F(CheckSettings, ImagesAndSequencesHaveSettingsOfTheirOwn) {
  EXPECT_THAT(refusal(Device::cpu, {"sequence"}), HasSubstr("resnet50 reads images"));
  config = RunConfig{};
  config.model = "bert_tiny";
  EXPECT_EQ(refusal(Device::cpu, {"sequence"}), "");
  EXPECT_THAT(refusal(Device::cpu, {"image_size"}), HasSubstr("bert_tiny reads sequences"));
  EXPECT_THAT(refusal(Device::cpu, {"classes"}), HasSubstr("no --classes"));
}

TEST_F(CheckSettings, MomentumIsOfSgd) {
  config.optimizer = Optimizer::adamw;
  EXPECT_EQ(refusal(Device::cpu, {"optimizer"}), "");
  EXPECT_THAT(refusal(Device::cpu, {"optimizer", "momentum"}), HasSubstr("--momentum is for SGD"));
}

TEST_F(CheckSettings, PinnedPlansNeedNoCache) {
  config.plans = "a.json";
  config.plan_cache = "b.json";
  EXPECT_THAT(refusal(Device::cuda, {"plans", "plan_cache"}), HasSubstr("--plan-cache"));
}

TEST(TrainerOptionsOf, AllowsTenTimesTheMinimum) {
  RunConfig config;
  config.warmup = 7;
  EXPECT_EQ(trainer_options(config).minimum_steps, 7);
  EXPECT_EQ(trainer_options(config).maximum_steps, 70);
}

}  // namespace
}  // namespace nearmetal
