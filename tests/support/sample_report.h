// A report in which every part is filled, for tests of what reads and writes reports.
#pragma once

#include "bench/cli/process.h"
#include "reports/document/settings.h"
#include "reports/document/types.h"
#include "reports/json/json.h"

namespace nearmetal {

inline Rank sample_rank() {
  Rank rank;
  rank.gpu = 0;
  rank.binding = Binding{"0-15,32-47", int64_t{0}, Unknown{"the system refuses to bind memory"}};
  rank.set_up = SetUp{"start of the process", 0.01, 0.5, 2.25, 0.125, 2.885};
  rank.step_seconds = {0.5, 0.1, 0.1 + 1e-17, 0.30000000000000004};
  rank.loss = {6.9, 6.8, 6.7, 6.6};
  rank.step_time = StepTime{.median_seconds = 0.2,
                            .p95_seconds = 0.29,
                            .p99_seconds = 0.298,
                            .jitter_seconds = 0.14826,
                            .drift = 1,
                            .autocorrelation = -0.25,
                            .relative_standard_error = Unknown{"fewer than 10 steps"},
                            .effective_steps = Unknown{"fewer than 10 steps"}};
  rank.host_window_seconds = 0.4;
  rank.monitoring = Monitoring{
      .interval_seconds = 0.1,
      .samples = 2,
      .verdict = MonitorVerdict::throttled,
      .reasons = {{.code = "clocks_heat_driver", .figure = Figure{0.5, 0.01, FigureUnit::share}}},
      .series = {{"power_watts", 600, 650.5, 701, {600, 701}}},
      .not_monitored = {{"sm_clock_hertz", "not told"}},
      .joules = 130.0,
      .samples_per_joule = Unknown{"not told"},
      .rdma_traffic = {{"mlx5_0", 1, 1'000'000, 2'000'000, 0}}};
  rank.probes =
      RankProbes{.needs = {.kernels = 250,
                           .input_bytes = 77070336,
                           .launch = LaunchMode::graph,
                           .memory_seconds = 0.006,
                           .compute_seconds = Unknown{"the rate of product/fp16 is not known"}},
                 .probes = {{"copy/device", "1 GiB", 2147483648, 0, 100, 5e-4, 5.1e-4, 6e-4},
                            {"product/fp16", "a product", 0, 1.1e12, 0, Unknown{"no memory"},
                             Unknown{"no memory"}, Unknown{"no memory"}}}};
  rank.stage =
      RankStage{.stage = 0,
                .replica = 0,
                .first_node = "input",
                .last_node = "layer2.3.relu",
                .parameters = 1'444'928,
                .gpipe_bytes = int64_t{2'000'000'000},
                .one_forward_one_backward_bytes = Unknown{"not told"},
                .seconds = PipelineSeconds{0.1, 0.02, 0.05, 0.02, 0.005},
                .boundary_bytes = 25'690'112,
                .boundary_seconds = 1e-4,
                .boundary_exact = true,
                .marks = {{{Pass::forward, 0}, 0, 0.02}, {{Pass::backward, 0}, 0.03, 0.08}}};
  rank.device_bytes = 41'200'000'000;
  return rank;
}

inline Run sample_run() {
  Run run;
  run.started_at = "2026-01-31T12:00:00Z";
  run.device = Device::cuda;
  run.device_name = "NVIDIA H200";
  run.device_reason = "asked for";
  run.parameters = 25557032;
  run.warm_up = WarmUp{.steps = 2,
                       .steady = true,
                       .minimum_steps = 2,
                       .maximum_steps = 20,
                       .maximum_seconds = 30,
                       .limit = 0.03,
                       .drift = 0.001,
                       .halves_difference = -0.002,
                       .judged_steps = 2};
  run.window = TimedWindow{.first_step = 2, .steps = 2, .samples = 512, .seconds = 0.4};
  run.throughput = 1280.0;
  run.flops_per_sample = 2.4e10;
  run.flops_per_second = 3.072e13;
  run.peak_flops_per_second = 9.89e14;
  run.share_of_peak = 3.072e13 / 9.89e14;
  run.proof.window_start_loss = 6.7;
  run.proof.window_end_loss = 6.6;
  run.proof.window_start_gradient_norm = 1.5;
  run.proof.window_end_gradient_norm = Unknown{"the gradient of that step was not finite"};
  run.proof.verify = Verify{.passed = true,
                            .samples = 16,
                            .steps = 12,
                            .maximum_steps = 60,
                            .bound = 3.45,
                            .first_loss = 7.0,
                            .last_loss = 3.4};
  run.pipeline = PipelineFigures{.library = "nccl 2.28.9",
                                 .stages = 1,
                                 .replicas = 1,
                                 .bubble = {0.3, Unknown{"not told"}, 0.0}};
  run.kernel_choices = {{"conv 64", "cudnn eng1", 1e-4, 1e-5}};
  run.profile = StepProfile{.entries = {{"conv1", Phase::forward, "cudnn eng1", 1e-3, 1e9, 1e8}},
                            .sum_seconds = 1e-3,
                            .step_seconds = 0.1,
                            .copy_bytes_per_second = 4.26e12,
                            .matrix_flops_per_second = 7.96e14,
                            .cache_bytes = 3e7,
                            .roofline_seconds = 2.3e-5,
                            .share_of_roofline = 2.3e-4};
  run.digests = {{.ranks = {0},
                  .kernels = kernel_choices_sha256(run.kernel_choices),
                  .parameters = {"conv1.weight", "fc.bias"},
                  .steps = {{1, "0x1.bp+2", {"0123456789abcdef", "2c34ce1df23b838c"}}}}};
  run.ranks = {sample_rank()};
  run.ranks[0].kernel_choices_sha256 = kernel_choices_sha256(run.kernel_choices);
  run.warnings = {{"drift", "step times changed"}};
  return run;
}

inline RdmaDevice sample_nic() {
  RdmaDevice nic;
  nic.name = "mlx5_0";
  nic.interfaces = {"ib0"};
  nic.pci_id = std::string("0000:18:00.0");
  nic.iommu_type = std::string("identity");
  nic.ats_capable = true;
  nic.ats = Unknown{"not readable"};
  nic.ports = {{.number = 1,
                .state = std::string("active"),
                .physical_state = std::string("linkup"),
                .link_layer = std::string("InfiniBand"),
                .bits_per_second = 400'000'000'000,
                .gids = {{0, Unknown{"not told"}, std::string("IB/RoCE v1"), Unknown{"none"}}}}};
  return nic;
}

inline Report sample_report() {
  Report report;
  report.tool = build_info();
  report.invocation.argv = {"nearmetal", "run", "--output", "na\"me\\\n\x01\xc3\xa9.json"};
  report.invocation.started_at = "2026-01-31T12:00:00Z";
  RunConfig& config = report.invocation.config;
  config.device = Device::cuda;
  config.precision = Precision::fp16;
  config.batch = 256;
  config.warmup = 2;
  config.launch = LaunchMode::graph;
  config.learning_rate = 0.1;
  config.loss_scale = LossScale{1024, false};
  config.plan_cache = "off";
  report.invocation.origins = origins_of({});
  report.invocation.origins["warmup"] = Origin::flag;
  report.invocation.config_sha256 = config_sha256(config);
  Environment environment;
  environment.host_name = "host";
  environment.kernel = "Linux 6.1";
  environment.architecture = "x86_64";
  environment.hypervisor_cpu_flag = true;
  Gpu gpu;
  gpu.name = "NVIDIA H200";
  gpu.uuid = std::string("GPU-1");
  gpu.pci_id = Unknown{"the backend does not tell"};
  gpu.memory_bytes = int64_t{150109880320};
  gpu.multiprocessors = int64_t{132};
  gpu.compute_capability = std::string("9.0");
  gpu.driver_version = std::string("580.1");
  gpu.peers = {{"0000:43:00.0", true, Unknown{"not told"}, true, PciDistance::sys}};
  gpu.nics = {{"mlx5_0", PciDistance::pix, GpuDirectRdma::peer_memory}};
  environment.gpus = {gpu};
  environment.rdma = {sample_nic()};
  environment.nccl_topology_file = std::string("/etc/topology.xml");
  environment.libraries = {{"CUDA", "13.0"}, {"cuDNN", "9.19"}};
  environment.variables = {{"NCCL_DEBUG", "INFO"}};
  report.environments = {environment};
  Arm& arm = report.arms.emplace_back();
  arm.name = "run";
  arm.runs = {sample_run()};
  return report;
}

}  // namespace nearmetal
