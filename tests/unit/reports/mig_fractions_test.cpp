#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <sstream>

#include "reports/compare/read_runs.h"
#include "reports/formats/report_text.h"
#include "reports/json/json.h"
#include "reports/sharing/fractions.h"
#include "tests/support/made_up_runs.h"
#include "tests/support/made_up_shares.h"
#include "tests/support/temporary_folder.h"

namespace nearmetal {
namespace {

// Adds one H200, as CUDA shows it, or a part of it.
int64_t add_gpu(Report& report, const std::string& name, int64_t multiprocessors,
                double gigabytes) {
  Gpu gpu;
  gpu.name = name;
  gpu.multiprocessors = multiprocessors;
  gpu.memory_bytes = static_cast<int64_t>(1e9 * gigabytes);
  std::vector<Gpu>& gpus = report.environments.at(0).gpus;
  gpu.uuid = "MIG-" + std::to_string(gpus.size());
  gpus.push_back(gpu);
  return std::ssize(gpus) - 1;
}

// The jobs of each run on these GPUs, one each.
void put_on(Arm& arm, const std::vector<int64_t>& gpus) {
  for (nearmetal::Run& run : arm.runs) {
    run.ranks.resize(1);
    run.ranks.resize(gpus.size(), run.ranks[0]);
    for (size_t i = 0; i < gpus.size(); ++i) {
      run.ranks[i].rank = static_cast<int64_t>(i);
      run.ranks[i].gpu = gpus[i];
    }
  }
}

// A sweep with MIG off, and one with MIG on, of the same board.
std::vector<Report> without_and_with_mig(const std::string& other_board = "NVIDIA H200") {
  Report whole = four_jobs(), divided = sample_report();
  const int64_t all = add_gpu(whole, "NVIDIA H200", 132, 151);
  for (Arm& arm : whole.arms) put_on(arm, {all});
  Arm& off = whole.arms.emplace_back();
  off.name = "4 jobs, MIG";
  off.unsupported = "MIG is off";
  divided.arms = {
      shared_arm("4 jobs, MIG 1g.18gb", {SharingMode::mig, 4, {}, {}, {}, {4, "1g.18gb"}},
                 {880, 890}),
      shared_arm("alone, MIG 1g.18gb", {SharingMode::mig, 1, {}, {}, {}, {"1g.18gb"}}, {230, 232})};
  std::vector<int64_t> parts;
  for (int i = 0; i < 4; ++i) {
    parts.push_back(add_gpu(divided, other_board + " MIG 1g.18gb", 16, 18));
  }
  put_on(divided.arms[0], parts);
  put_on(divided.arms[1], {parts[0]});
  Arm& on = divided.arms.emplace_back();
  on.name = "serial";
  on.unsupported = "MIG is on";
  int minute = 0;
  for (Report* report : {&whole, &divided}) {
    for (Arm& arm : report->arms) {
      for (nearmetal::Run& run : arm.runs) run.started_at = time_at(minute++);
    }
  }
  return {whole, divided};
}

std::vector<FractionPoint> points_of_all(const std::vector<Report>& reports) {
  RunSet set;
  for (const Report& report : reports) add_runs(set, report, "made up");
  return fractions_of(set);
}

TEST(MigFractions, AreComparedWithTheWholeBoardOfAnotherReport) {
  const std::vector<FractionPoint> points = points_of_all(without_and_with_mig());
  ASSERT_EQ(points.size(), 7);
  const FractionPoint &mps = points[3], &mig = points[5], &alone = points[6];
  const double of_mig = std::sqrt(880. * 890);
  EXPECT_DOUBLE_EQ(mig.of_serial->value, of_mig / std::sqrt(990. * 1000));
  EXPECT_DOUBLE_EQ(mig.of_timeslice->value, of_mig / std::sqrt(900. * 910));
  EXPECT_DOUBLE_EQ(mig.slowdown->value, 4 * std::sqrt(1000. * 1010) / of_mig);
  EXPECT_DOUBLE_EQ(mig.interference->value, 4 * std::sqrt(230. * 232) / of_mig);
  EXPECT_DOUBLE_EQ(*mig.samples_per_joule, of_mig / 500) << "the power is that of the board, once";
  EXPECT_DOUBLE_EQ(*mig.memory_bytes, 4 * 3e9) << "each tells of its own part";
  EXPECT_DOUBLE_EQ(*alone.memory_bytes, 3e9);
  EXPECT_DOUBLE_EQ(*mps.memory_bytes, 3e9) << "each tells of all";
  EXPECT_TRUE(alone.slowdown);
  EXPECT_EQ(alone.interference.reason, "it is the reference");
}

TEST(MigFractions, OfAnotherBoardAreNoReference) {
  const std::vector<FractionPoint> points = points_of_all(without_and_with_mig("NVIDIA H200 NVL"));
  EXPECT_FALSE(points.at(5).of_serial);
  EXPECT_TRUE(points.at(5).interference);
}

// As of the arms of a sweep where MIG is on: of the GPU CUDA shows one device.
Report of_a_part_taken_for_the_gpu() {
  Report report = four_jobs();
  const int64_t part = add_gpu(report, "NVIDIA H200 MIG 1g.18gb", 16, 18);
  int minute = 50;
  for (Arm& arm : report.arms) {
    put_on(arm, {part});
    arm.name += " on a part";
    for (nearmetal::Run& run : arm.runs) {
      *run.throughput.value /= 10;
      run.started_at = time_at(minute++);
    }
  }
  return report;
}

TEST(MigFractions, APartThatStoodForTheGpuIsNoReference) {
  const std::vector<Report> reports = without_and_with_mig();
  const Report on_a_part = of_a_part_taken_for_the_gpu();
  const std::vector<FractionPoint> alone = points_of_all({on_a_part, reports[1]});
  ASSERT_EQ(alone.size(), 7);
  for (const FractionPoint& point : alone) {
    EXPECT_FALSE(point.of_serial) << point.arm;
    EXPECT_FALSE(point.of_timeslice) << point.arm;
    EXPECT_FALSE(point.slowdown) << point.arm;
  }
  EXPECT_TRUE(alone[5].interference) << "of MIG devices";
  const std::vector<FractionPoint> all = points_of_all({on_a_part, reports[0], reports[1]});
  const std::vector<FractionPoint> both = points_of_all(reports);
  EXPECT_DOUBLE_EQ(all.at(10).of_serial->value, both.at(5).of_serial->value);
  EXPECT_DOUBLE_EQ(all.at(10).slowdown->value, both.at(5).slowdown->value);
  EXPECT_FALSE(all.at(2).slowdown) << "nor is it held against the whole";
  Report without_name = on_a_part;
  for (Gpu& gpu : without_name.environments[0].gpus) {
    gpu.name = "NVIDIA H200";
    gpu.mig_profile = std::string("1g.18gb");
  }
  EXPECT_FALSE(points_of_all({without_name, reports[1]}).at(5).of_serial);
}

TEST(MigFractions, VgpusAreReferencesOfTheirProfileAlone) {
  Report report = four_jobs();
  const int64_t small = add_gpu(report, "NVIDIA A100", 108, 10);
  const int64_t large = add_gpu(report, "NVIDIA A100", 108, 40);
  report.environments[0].gpus[small].vgpu_profile = std::string("A100-10C");
  report.environments[0].gpus[large].vgpu_profile = std::string("A100-40C");
  for (Arm& arm : report.arms) put_on(arm, {large});
  EXPECT_TRUE(points_of(report)[3].slowdown);
  put_on(report.arms[0], {small});
  const FractionPoint mps = points_of(report)[3];
  EXPECT_FALSE(mps.slowdown);
  EXPECT_TRUE(mps.of_serial);
}

TEST(MigFractions, MemoryIsOfAllDevicesOrNotKnown) {
  Report report = sample_report();
  report.arms = {
      shared_arm("VMs", {SharingMode::vgpu, 2, {}, {}, {}, {2, "A100-10C"}}, {90, 91}),
      shared_arm("beside", {SharingMode::mig, 1, {}, {}, {"copy"}, {2, "1g.18gb"}}, {90, 91})};
  const int64_t gpu = add_gpu(report, "GRID A100-10C", 108, 10);
  put_on(report.arms[0], {gpu, gpu});
  const std::vector<FractionPoint> points = points_of(report);
  EXPECT_DOUBLE_EQ(*points.at(0).memory_bytes, 2 * 3e9);
  EXPECT_EQ(points.at(1).memory_bytes.reason, "its neighbours' devices are not looked at");
}

TEST(MigFractions, OfSeveralGpusThePowerOfOneIsNotThatOfAll) {
  std::vector<Report> reports = without_and_with_mig();
  std::vector<Gpu>& parts = reports[1].environments[0].gpus;
  for (Gpu& part : parts) part.pci_id = std::string("00000000:1B:00.0");
  EXPECT_TRUE(points_of_all(reports).at(5).samples_per_joule);
  parts.back().pci_id = std::string("00000000:43:00.0");
  EXPECT_EQ(points_of_all(reports).at(5).samples_per_joule.reason, "the jobs are on several GPUs");
  EXPECT_TRUE(points_of_all(reports).at(6).samples_per_joule);
}

TEST(MigFractions, UnequalPartsAreComparedWithJobsAloneOnEach) {
  std::vector<Report> reports = without_and_with_mig();
  reports[1].arms[0].share->profiles = {"3g.71gb", "1g.18gb", "1g.18gb", "1g.18gb"};
  EXPECT_FALSE(points_of_all(reports).at(5).interference) << "none was alone on 3g.71gb";
  reports[1].arms.push_back(
      shared_arm("alone, MIG 3g.71gb", {SharingMode::mig, 1, {}, {}, {}, {"3g.71gb"}}, {500, 505}));
  put_on(reports[1].arms.back(), {add_gpu(reports[1], "NVIDIA H200 MIG 3g.71gb", 60, 75)});
  EXPECT_NEAR(points_of_all(reports).at(5).interference->value,
              std::pow(std::sqrt(230. * 232), 0.75) * std::pow(std::sqrt(500. * 505), 0.25) /
                  (std::sqrt(880. * 890) / 4),
              1e-9);
}

TEST(MigFractions, TellWhatAJobHasOfTheGpu) {
  std::vector<Report> reports = without_and_with_mig();
  reports[0].arms[3].share->memory_gib = {40, 0, 0, 0};
  for (nearmetal::Run& run : reports[0].arms[3].runs) run.ranks.resize(4, run.ranks[0]);
  const std::vector<FractionPoint> points = points_of_all(reports);
  EXPECT_EQ(points[0].given, "132 SMs, 151 GB");
  EXPECT_EQ(points[3].given, "25 % of the SMs, 42.9 GB; 3 x 25 % of the SMs, 151 GB");
  EXPECT_EQ(points[5].given, "16 SMs, 18.0 GB");
  for (nearmetal::Run& run : reports[0].arms[0].runs) run.ranks[0].gpu.reset();
  EXPECT_EQ(points_of_all(reports)[0].given, "-") << "on CPUs";
}

TEST(MigFractions, TellOfVgpusWhatTheirGuestsKnow) {
  Report report = four_jobs();
  const int64_t gpu = add_gpu(report, "GRID A100-40C", 108, 42);
  report.environments[0].gpus[gpu].vgpu_profile = std::string("A100-40C");
  report.environments[0].gpus[gpu].vgpu_licence = std::string("unlicensed");
  report.environments[0].gpus[gpu].vgpu_scheduler = Unknown{"Not Supported"};
  put_on(report.arms[0], {gpu});
  RunSet set;
  add_runs(set, report, "made up");
  std::ostringstream out;
  print_markdown(out, set);
  EXPECT_THAT(out.str(),
              testing::HasSubstr("alone: on a vGPU A100-40C, licence: unlicensed, scheduler: not "
                                 "known here"));
}

TEST(MigFractions, OfSeveralReportsWhatOneHasIsNotUnsupported) {
  const TemporaryFolder folder;
  std::vector<Report> reports = without_and_with_mig();
  Places places;
  for (Report& report : reports) {
    for (Arm& arm : report.arms) {
      for (nearmetal::Run& run : arm.runs) run.window = Unknown{"of made up speeds"};
    }
    places.push_back(
        folder.write("r" + std::to_string(places.size()) + ".json", to_json(report)).string());
  }
  const RunSet set = read_runs(places);
  EXPECT_EQ(set.arms.size(), 7);
  EXPECT_TRUE(set.unsupported.empty());
  EXPECT_EQ(read_runs({places[0]}).unsupported.size(), 1);
  EXPECT_TRUE(fractions_of(set).at(5).of_serial);
}

}  // namespace
}  // namespace nearmetal
