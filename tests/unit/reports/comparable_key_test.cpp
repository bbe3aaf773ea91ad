#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "reports/compare/run_set.h"
#include "tests/support/made_up_runs.h"

namespace nearmetal {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::vector<KeyField> key_of(const Report& report) {
  return comparable_key(report, report.arms[0], report.arms[0].runs[0]);
}

// With ranks that tell of the ways that MPI took.
std::string ways_of(AllReduceKind kind, const std::vector<std::string>& first,
                    const std::vector<std::string>& second) {
  Report report = sample_report();
  Run& run = report.arms[0].runs[0];
  run.communication.emplace().all_reduce = kind;
  run.ranks.resize(2);
  run.ranks[0].mpi_transports = first;
  run.ranks[1].mpi_transports = second;
  return value_in(key_of(report), "mpi_transports");
}

TEST(ComparableKey, HoldsTheTransportsOfMpiWhereItCarriesGradients) {
  using enum AllReduceKind;
  EXPECT_EQ(ways_of(mpi, {"tcp/eth0", "sysv/memory"}, {"tcp/ens3"}), "sysv tcp");
  EXPECT_EQ(ways_of(hierarchical, {"rc_mlx5/mlx5_0:1"}, {"rc_mlx5/mlx5_1:1"}), "rc_mlx5");
  EXPECT_EQ(ways_of(nccl, {"tcp/eth0"}, {"tcp/eth0"}), "") << "they carry no gradients";
  EXPECT_EQ(value_in(key_of(sample_report()), "mpi_transports", "none"), "none");
}

// Names of the fields that differ after a change of the sample report.
std::vector<std::string> changed_by(const std::function<void(Report&)>& change) {
  Report report = sample_report();
  change(report);
  std::vector<std::string> names;
  for (const auto& difference : key_differences(key_of(sample_report()), key_of(report))) {
    names.push_back(difference.name);
  }
  return names;
}

TEST(ComparableKey, HoldsWhatMustAgree) {
  const auto config = [](Report& report) -> RunConfig& { return report.invocation.config; };
  EXPECT_THAT(changed_by([&](Report& r) { config(r).model = "resnet18"; }), ElementsAre("model"));
  EXPECT_THAT(changed_by([&](Report& r) { config(r).batch = 8; }), ElementsAre("batch"));
  EXPECT_THAT(changed_by([&](Report& r) { config(r).precision = Precision::bf16; }),
              ElementsAre("precision"));
  EXPECT_THAT(changed_by([&](Report& r) { config(r).input = Input::pinned; }),
              ElementsAre("input"));
  EXPECT_THAT(changed_by([&](Report& r) { config(r).launch = LaunchMode::stream; }),
              ElementsAre("launch"));
  EXPECT_THAT(changed_by([&](Report& r) { config(r).host_wait = HostWait::block; }),
              ElementsAre("host_wait"));
  EXPECT_THAT(changed_by([&](Report& r) { config(r).kernels = Kernels::cudnn; }),
              ElementsAre("kernels"));
  EXPECT_THAT(changed_by([&](Report& r) { config(r).accumulate = 2; }), ElementsAre("accumulate"));
  EXPECT_THAT(changed_by([&](Report& r) { config(r).inference = true; }), ElementsAre("inference"));
  EXPECT_THAT(changed_by([&](Report& r) { config(r).optimizer = Optimizer::adamw; }),
              ElementsAre("optimizer"));
  EXPECT_THAT(changed_by([&](Report& r) { config(r).optimizer = Optimizer::sgd; }), IsEmpty())
      << "that of earlier reports";
  EXPECT_THAT(changed_by([](Report& r) { r.arms[0].kind = Kind::emulated; }), ElementsAre("kind"));
  EXPECT_THAT(changed_by([](Report& r) { r.arms[0].runs[0].world_size = 2; }),
              ElementsAre("world_size"));
  EXPECT_THAT(changed_by([](Report& r) { r.environments[0].gpus[0].name = "NVIDIA A100-40C"; }),
              ElementsAre("gpu_chip"));
  EXPECT_THAT(changed_by([](Report& r) { r.environments[0].libraries["cuDNN"] = "9.20"; }),
              ElementsAre("libraries.cuDNN"));
  EXPECT_THAT(changed_by([](Report& r) { r.environments[0].libraries["NCCL"] = "2.28"; }),
              ElementsAre("libraries.NCCL"));
}

// As of a sweep over hosts with and without a GPU.
TEST(ComparableKey, LibrariesOfOtherRunsDoNotCount) {
  Report several = sample_report();
  several.environments.push_back(several.environments[0]);
  several.environments[1].libraries["oneDNN"] = "3.0";
  const std::vector<KeyField> alone = key_of(sample_report()), among = key_of(several);
  EXPECT_THAT(key_differences(alone, among), IsEmpty());
  EXPECT_EQ(context_sha256(alone), context_sha256(among));
}

TEST(ComparableKey, EveryFieldMayBeAllowedToDiffer) {
  const auto everything = [](Report& report) {
    nearmetal::Run& run = report.arms[0].runs[0];
    run.world_size = 4;
    run.communication.emplace().all_reduce = AllReduceKind::mpi;
    run.ranks.at(0).mpi_transports = std::vector<std::string>{"tcp/eth0"};
    run.jobs.emplace_back();
    report.invocation.config.gradient_type = GradientType::bf16;
    report.invocation.config.host_wait = HostWait::block;
    report.invocation.config.kernels = Kernels::cudnn;
    report.invocation.config.accumulate = 2;
    report.invocation.config.sequence = 128;
    report.invocation.config.optimizer = Optimizer::adamw;
    report.invocation.config.pipeline = 2;
    report.invocation.config.micro_batches = 2;
    report.invocation.config.schedule = Schedule::gpipe;
    report.invocation.config.cuts = "layer2.3";
    report.arms[0].share.emplace();
  };
  Report on_gpu = sample_report();
  everything(on_gpu);
  Report on_cpu = on_gpu;
  on_cpu.arms[0].runs[0].device = Device::cpu;
  Report evaluated = on_gpu;  // exchanges nothing
  evaluated.invocation.config.inference = true;
  Report of_images = on_gpu;
  of_images.invocation.config.sequence.reset();
  const std::vector<std::string> known = fields_that_may_differ();
  std::set<std::string> used = {"loss_scale", "libraries"};
  for (const Report& report : {on_gpu, on_cpu, evaluated, of_images}) {
    for (const KeyField& field : key_of(report)) {
      if (!field.name.starts_with("libraries.")) used.insert(field.name);
    }
  }
  used.insert(imported_work.begin(), imported_work.end());  // the names in published files
  EXPECT_THAT(known, testing::UnorderedElementsAreArray(used));
}

TEST(ComparableKey, SequencesHaveNeitherPixelsNorClasses) {
  const auto names = [](const Report& report) {
    std::set<std::string> names;
    for (const KeyField& field : key_of(report)) names.insert(field.name);
    return names;
  };
  Report report = sample_report();
  EXPECT_THAT(names(report), testing::IsSupersetOf({"image_size", "classes"}));
  report.invocation.config.sequence = 384;
  EXPECT_THAT(names(report), testing::Not(testing::AnyOf(testing::Contains("image_size"),
                                                         testing::Contains("classes"))));
}

TEST(ComparableKey, OnlyKindsThatRanMayDiffer) {
  const auto allowed = [](Kind base, Kind other) {
    return KeyDifference{.name = "kind",
                         .severity = Severity::kind,
                         .base = to_string(base),
                         .other = to_string(other)}
        .can_be_allowed();
  };
  EXPECT_TRUE(allowed(Kind::measured, Kind::emulated));
  EXPECT_TRUE(allowed(Kind::emulated, Kind::measured));
  EXPECT_FALSE(allowed(Kind::measured, Kind::predicted));
  EXPECT_FALSE(allowed(Kind::imported, Kind::emulated));
}

TEST(ComparableKey, HoldsNothingOfHostDriverOrProduct) {
  EXPECT_THAT(changed_by([](Report& r) {
                Environment& environment = r.environments[0];
                environment.host_name = "other";
                environment.kernel = "Linux 7";
                environment.hypervisor_cpu_flag = false;
                environment.cpu_model = std::string("another");
                environment.usable_cpus = 99;
                environment.gpus[0].driver_version = std::string("999");
                environment.libraries["cuda_driver_api"] = "99.0";
                environment.gpus[0].name = "NVIDIA H200 NVL";
                r.invocation.config.seed = 7;
                r.invocation.config.steps = 9;
                r.invocation.config.verify = true;
                r.tool.version = "9.9";
              }),
              IsEmpty());
}

TEST(ComparableKey, OnTheCpuItsModelAndThreadsCount) {
  Report report = sample_report();
  report.arms[0].runs[0].device = report.invocation.config.device = Device::cpu;
  report.arms[0].runs[0].ranks[0].gpu.reset();
  report.environments[0].cpu_model = std::string("AMD EPYC");
  Report other = report;
  other.environments[0].cpu_model = std::string("Xeon");
  other.environments[0].usable_cpus += 1;
  const auto differences = key_differences(key_of(report), key_of(other));
  ASSERT_EQ(differences.size(), 2U);
  EXPECT_EQ(differences[0], (KeyDifference{"cpu_model", Severity::hardware, "AMD EPYC", "Xeon"}));
  EXPECT_EQ(differences[1].name, "threads");
  EXPECT_TRUE(differences[0].is_treatment(ComparisonForm::vm));
  EXPECT_FALSE(differences[0].is_treatment(ComparisonForm::container)) << "it sees its host's";
  EXPECT_FALSE(differences[1].is_treatment(ComparisonForm::vm));
}

TEST(ComparableKey, OnTheCpuTwoMachinesOfOneNameDiffer) {
  Report report = sample_report();
  report.arms[0].runs[0].device = report.invocation.config.device = Device::cpu;
  report.arms[0].runs[0].ranks[0].gpu.reset();
  Environment& machine = report.environments[0];
  machine.logical_cpus = 2;
  machine.memory_bytes = int64_t{8} << 30;
  Report other = report;
  Environment& larger = other.environments[0];
  larger.logical_cpus = 64;
  larger.memory_bytes = int64_t{252} << 30;
  larger.processor.vendor = std::string("AuthenticAMD");
  larger.processor.family = int64_t{25};
  larger.processor.model = int64_t{17};
  larger.processor.stepping = int64_t{1};
  const auto names = [&] {
    std::vector<std::string> found;
    for (const KeyDifference& difference : key_differences(key_of(report), key_of(other))) {
      found.push_back(difference.name + " " + difference.base + " " + difference.other);
      EXPECT_TRUE(difference.is_treatment(ComparisonForm::vm));
    }
    return found;
  };
  EXPECT_THAT(names(), ElementsAre("logical_cpus 2 64", "memory 8 GiB 256 GiB"))
      << "a report that does not tell its CPU's identity has no other one";
  machine.processor = larger.processor;
  machine.processor.model = int64_t{1};
  larger.logical_cpus = 2;
  larger.memory_bytes = (int64_t{8} << 30) - 300'000'000;
  EXPECT_THAT(names(), ElementsAre("cpu_id AuthenticAMD 25 1 1 AuthenticAMD 25 17 1"));
  EXPECT_EQ(context_sha256(key_of(report)), context_sha256(key_of(other)))
      << "folders of baselines stay where they are";
}

TEST(ComparableKey, RanksPerJob) {
  const auto key_with = [](std::vector<ConcurrentJob> jobs) {
    Report report = sample_report();
    report.arms[0].runs[0].jobs = std::move(jobs);
    return key_of(report);
  };
  EXPECT_THAT(key_differences(key_with({{.ranks = 1}, {.ranks = 2}}),
                              key_with({{.ranks = 2}, {.ranks = 1}})),
              ElementsAre(KeyDifference{"ranks_per_job", Severity::layout, "1 2", "2 1"}));
}

TEST(ComparableKey, RanksPerInstance) {
  Report report = sample_report();
  report.environments.push_back(report.environments[0]);
  std::vector<Rank>& ranks = report.arms[0].runs[0].ranks;
  ranks.resize(3, ranks[0]);
  ranks[2].environment = 1;
  const auto differences = key_differences(key_of(sample_report()), key_of(report));
  ASSERT_EQ(differences.size(), 1U);
  EXPECT_EQ(differences[0], (KeyDifference{"ranks_per_instance", Severity::layout, "1", "2 1"}));
  EXPECT_TRUE(differences[0].is_treatment(ComparisonForm::vm));
  EXPECT_TRUE(differences[0].is_treatment(ComparisonForm::container));
  EXPECT_FALSE(differences[0].is_treatment(ComparisonForm::sets));
}

TEST(ComparableKey, WhatSumsGradientsMustAgree) {
  const auto of_library = [](const std::string& library) {
    Report report = sample_report();
    report.arms[0].runs[0].communication.emplace().library = library;
    return report;
  };
  const Report nccl = of_library("nccl 2.28.9");
  const auto differences = key_differences(key_of(nccl), key_of(of_library("mpi")));
  ASSERT_EQ(differences.size(), 1U);
  EXPECT_EQ(differences[0].name, "communication");
  EXPECT_FALSE(differences[0].is_treatment(ComparisonForm::vm));
  EXPECT_EQ(context_sha256(key_of(nccl)), context_sha256(key_of(sample_report())))
      << "arms of one rank and of several are held against each other";
}

TEST(ComparableKey, TheTypeOfGradientsMustAgreeWhereTheyTravel) {
  const auto of = [](GradientType type, int64_t ranks) {
    Report report = sample_report();
    report.invocation.config.gradient_type = type;
    report.arms[0].runs[0].world_size = ranks;
    return report;
  };
  EXPECT_THAT(
      key_differences(key_of(of(GradientType::computed, 2)), key_of(of(GradientType::bf16, 2))),
      ElementsAre(KeyDifference{"gradient_type", Severity::layout, "none", "bf16"}));
  EXPECT_THAT(
      key_differences(key_of(of(GradientType::computed, 1)), key_of(of(GradientType::bf16, 1))),
      IsEmpty());
  const auto differences_without = [&](const std::function<void(RunConfig&)>& change) {
    Report computed = of(GradientType::computed, 2), sent = of(GradientType::bf16, 2);
    change(computed.invocation.config);
    change(sent.invocation.config);
    return key_differences(key_of(computed), key_of(sent));
  };
  EXPECT_THAT(differences_without([](RunConfig& c) { c.update = Update::independent; }), IsEmpty());
  EXPECT_THAT(differences_without([](RunConfig& c) { c.forward_only = true; }), IsEmpty());
  EXPECT_EQ(context_sha256(key_of(of(GradientType::bf16, 1))),
            context_sha256(key_of(of(GradientType::bf16, 2))))
      << "arms of one rank and of several are held against each other";
}

TEST(ComparableKey, ARankWithoutItsEnvironmentIsUnknownNotACrash) {
  Report report = sample_report();
  report.arms[0].runs[0].ranks[0].environment = 7;
  EXPECT_FALSE(key_differences(key_of(sample_report()), key_of(report)).empty());
}

TEST(ComparableKey, TheWorstDifferenceComesFirst) {
  EXPECT_THAT(changed_by([](Report& r) {
                r.environments[0].libraries["cuDNN"] = "8";
                r.environments[0].gpus[0].name = "NVIDIA A30";
                r.arms[0].runs[0].world_size = 2;
                r.invocation.config.batch = 1;
                r.arms[0].kind = Kind::predicted;
              }),
              ElementsAre("kind", "batch", "world_size", "gpu_chip", "libraries.cuDNN"));
}

TEST(ComparableKey, AllowedByNameOrGroup) {
  EXPECT_TRUE(covers("batch", "batch"));
  EXPECT_TRUE(covers("libraries", "libraries.cuDNN"));
  EXPECT_TRUE(covers("libraries.cuDNN", "libraries.cuDNN"));
  EXPECT_FALSE(covers("libraries.CUDA", "libraries.cuDNN"));
  EXPECT_FALSE(covers("bat", "batch"));
}

TEST(ComparableKey, ABatchThatMayDifferBringsWhatFollowsFromIt) {
  const std::vector<KeyField> base = {{"batch", "256"},
                                      {"learning_rate", "0.1"},
                                      {"loss_scale.initial", "1024"},
                                      {"momentum", "0.9"}};
  std::vector<KeyField> other = {
      {"batch", "64"}, {"learning_rate", "0.2"}, {"loss_scale.initial", "256"}, {"momentum", "0"}};
  const auto names_allowed = [&](const std::string& field) {
    std::vector<KeyDifference> differences = key_differences(base, other);
    allow(differences, ComparisonForm::sets, {field});
    std::vector<std::string> names;
    for (const KeyDifference& difference : differences) {
      if (difference.allowed) names.push_back(difference.name);
    }
    return names;
  };
  EXPECT_THAT(names_allowed("batch"), ElementsAre("batch", "learning_rate", "loss_scale.initial"));
  EXPECT_THAT(names_allowed("learning_rate"), ElementsAre("learning_rate"));
  other[0].value = base[0].value;
  EXPECT_THAT(names_allowed("batch"), IsEmpty()) << "it does not differ";
}

TEST(ComparableKey, TheContextLeavesTheLayoutOut) {
  Report report = sample_report();
  report.arms[0].runs[0].world_size = 8;
  EXPECT_EQ(context_sha256(key_of(report)), context_sha256(key_of(sample_report())));
  report.invocation.config.batch = 1;
  EXPECT_NE(context_sha256(key_of(report)), context_sha256(key_of(sample_report())));
}

TEST(GpuChip, LeavesProductMemoryAndProfileOut) {
  for (const char* name :
       {"NVIDIA A100-SXM4-80GB", "NVIDIA A100 80GB PCIe", "GRID A100-40C", "NVIDIA A100-1-5C",
        "NVIDIA A100-PCIE-40GB", "NVIDIA A100 80GB PCIe MIG 1g.10gb", "A100"}) {
    EXPECT_EQ(gpu_chip(name), "A100") << name;
  }
  EXPECT_EQ(gpu_chip("NVIDIA H200"), "H200");
  EXPECT_EQ(gpu_chip("NVIDIA H200 NVL"), "H200");
  EXPECT_EQ(gpu_chip("NVIDIA H100 80GB HBM3"), "H100");
  EXPECT_EQ(gpu_chip("NVIDIA GH200 480GB"), "GH200");
  EXPECT_EQ(gpu_chip("NVIDIA A30 MIG 1g.6gb"), "A30");
  EXPECT_EQ(gpu_chip("Tesla T4"), "T4");
  EXPECT_EQ(gpu_chip("NVIDIA RTX A6000-8Q"), "RTX A6000");
  EXPECT_EQ(gpu_chip("NVIDIA GeForce RTX 4090"), "RTX 4090");
  EXPECT_EQ(gpu_chip("NVIDIA"), "NVIDIA") << "nothing else is known";
  EXPECT_EQ(gpu_chip(""), "");
}

}  // namespace
}  // namespace nearmetal
