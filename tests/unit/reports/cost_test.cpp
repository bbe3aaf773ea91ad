#include "reports/sharing/cost.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/text.h"
#include "reports/compare/compare.h"
#include "reports/compare/comparison_row.h"
#include "reports/document/metric.h"
#include "reports/formats/benchmark_text.h"
#include "reports/formats/charts/throughput_charts.h"
#include "reports/formats/report_text.h"
#include "reports/json/json.h"
#include "tests/support/made_up_runs.h"
#include "tests/support/made_up_shares.h"
#include "tests/support/refusal.h"

namespace nearmetal {
namespace {

using testing::Contains;
using testing::HasSubstr;

// To 3.6 million images.
const CostRequest four_twenty{.price_per_gpu_hour = 4.20, .samples = 3.6e6};

// Of 1000 images/s on one GPU, and of 1900 on two.
Report two_layouts() {
  Report report = made_up_report({{"1x1x1", {1000, 1000.5}}, {"1x1x2", {1900, 1901}}});
  const Gpu second = report.environments[0].gpus[0];
  report.environments[0].gpus.push_back(second);
  for (nearmetal::Run& run : report.arms[1].runs) {
    run.world_size = 2;
    run.ranks.push_back(run.ranks[0]);
    run.ranks[1].rank = 1;
    run.ranks[1].gpu = 1;
  }
  return report;
}

RunSet priced(const Report& report, const CostRequest& request) {
  RunSet set = set_of(report);
  add_costs(set, request);
  return set;
}

SideSummary side_of(const RunSet& set, size_t arm, CostFigure figure) {
  return summary_of_arm(set.arms.at(arm), metric_from(to_string(figure)));
}

double mean_of(const RunSet& set, size_t arm, CostFigure figure) {
  return side_of(set, arm, figure).geometric_mean.value.value_or(0);
}

// Why the first run of an arm lacks the figure.
std::string reason_of(const Report& report, const CostRequest& request,
                      CostFigure figure = CostFigure::cost) {
  const RunSet set = priced(report, request);
  const Maybe<double> value = set.arms.at(0).runs.at(0).run.costs.at(figure);
  return value ? "" : value.reason;
}

TEST(Cost, IsGpusTimesHoursTimesPrice) {
  const RunSet set = priced(two_layouts(), four_twenty);
  const double one = std::sqrt(1000 * 1000.5), two = std::sqrt(1900.0 * 1901);
  EXPECT_NEAR(mean_of(set, 0, CostFigure::hours), 1000 / one, 1e-12) << "an hour at 1000/s";
  EXPECT_NEAR(mean_of(set, 0, CostFigure::cost), 4.20 * 1000 / one, 1e-12);
  EXPECT_NEAR(mean_of(set, 0, CostFigure::cost_per_million), 4.20 / 3.6 * 1000 / one, 1e-12);
  EXPECT_NEAR(mean_of(set, 1, CostFigure::hours), 1000 / two, 1e-12);
  EXPECT_NEAR(mean_of(set, 1, CostFigure::cost), 2 * 4.20 * 1000 / two, 1e-12);
}

TEST(Cost, HasTheIntervalOfThroughputInverted) {
  const RunSet set = priced(made_up_report({{"run", {1000, 1100}}, {"once", {1000}}}), four_twenty);
  // Of ln 1000 and ln 1100: their mean -+ t(0.975, 1 degree of freedom) x half their distance.
  const double mean = std::sqrt(1000.0 * 1100);
  const double factor = std::exp(12.706204736 * std::log(1.1) / 2);
  const SideSummary hours = side_of(set, 0, CostFigure::hours);
  const SideSummary throughput = summary_of_arm(set.arms[0], throughput_metric(SampleUnit::image));
  ASSERT_TRUE(hours.interval);
  EXPECT_NEAR(hours.interval->lower, 1000 / (mean * factor), 1e-8);
  EXPECT_NEAR(hours.interval->upper, 1000 / (mean / factor), 1e-8);
  EXPECT_NEAR(hours.interval->lower, 1000 / throughput.interval->upper, 1e-12);
  EXPECT_NEAR(side_of(set, 0, CostFigure::cost).interval->upper, 4.20 * hours.interval->upper,
              1e-9);
  EXPECT_FALSE(side_of(set, 1, CostFigure::hours).interval) << "one run has none";
}

TEST(Cost, IsToWhatIsUsualOrAskedFor) {
  Report report = made_up_report({{"run", {1000}}});
  const auto samples = [&](const CostRequest& request) {
    return 1000 * 3600 * mean_of(priced(report, request), 0, CostFigure::hours);
  };
  EXPECT_NEAR(samples({.price_per_gpu_hour = 1}), 115'305'030, 1) << "90 x 1,281,167";
  EXPECT_NEAR(samples({.epochs = 2}), 2'562'334, 1);
  EXPECT_NEAR(samples({.samples = 1.5e6}), 1.5e6, 1);
  EXPECT_THAT(priced(report, {.price_per_gpu_hour = 1}).cost_notes,
              Contains("time and cost are those of 115.305 million images, 90 epochs of ImageNet: "
                       "torchvision, references/classification/README.md"));
  const auto unknown = HasSubstr("no usual training of such work");
  report.invocation.config.image_size = 64;
  EXPECT_THAT(reason_of(report, {.epochs = 1}, CostFigure::hours), unknown);
  report.invocation.config.model = "bert_large";
  report.invocation.config.sequence = 512;
  for (nearmetal::Run& run : report.arms[0].runs) run.sample = SampleUnit::sequence;
  EXPECT_NEAR(samples({.price_per_gpu_hour = 1}), 2'552'704, 1) << "MLPerf's, whose RCP it is";
  EXPECT_THAT(reason_of(report, {.epochs = 1}, CostFigure::hours), unknown);
  report.invocation.config.sequence = 384;
  EXPECT_THAT(reason_of(report, {.price_per_gpu_hour = 1}, CostFigure::hours), unknown);
}

TEST(Cost, OfInferenceIsToSamplesAlone) {
  Report report = made_up_report({{"run", {1000}}});
  report.invocation.config.inference = true;
  EXPECT_THAT(reason_of(report, {.price_per_gpu_hour = 1}), HasSubstr("give --samples"));
  EXPECT_EQ(reason_of(report, four_twenty), "");
}

TEST(Cost, IsUnknownForAReason) {
  Report report = made_up_report({{"run", {1000}}});
  report.environments[0].gpus[0].vgpu_profile = std::string("H200-35C");
  EXPECT_EQ(reason_of(report, four_twenty),
            "a vGPU is an unknown part of a GPU; give --gpus-per-host");
  CostRequest stated = four_twenty;
  stated.gpus_per_host = 1;
  EXPECT_EQ(reason_of(report, stated), "");
  report.arms[0].runs[0].device_name = "NVIDIA H200 MIG 1g.18gb";
  report.environments[0].gpus[0].vgpu_profile = Unknown{"no vGPU"};
  EXPECT_EQ(reason_of(report, four_twenty), "its MIG devices are parts of GPUs");
  report.arms[0].runs[0].ranks[0].gpu.reset();
  report.arms[0].runs[0].device_name = "AMD EPYC";
  EXPECT_EQ(reason_of(report, four_twenty), "it ran on CPUs");
  EXPECT_EQ(reason_of(report, four_twenty, CostFigure::hours), "") << "time takes no GPU";
  std::ostringstream text;
  print_text(text, priced(report, four_twenty));
  EXPECT_THAT(text.str(), HasSubstr("is left out of training_cost: it ran on CPUs"));
}

TEST(Cost, OfAPublishedResultTakesItsGpus) {
  Report report = made_up_report({{"run", {}}});
  report.kind = report.arms[0].kind = Kind::imported;
  report.sources = {{"file", "sha", ImportFormat::pairs}};
  report.arms[0].imported.resize(1);
  report.arms[0].imported[0].world_size = 4;
  report.arms[0].imported[0].throughput = 1000.0;
  EXPECT_NEAR(mean_of(priced(report, four_twenty), 0, CostFigure::cost), 4 * 4.20, 1e-9);
  CostRequest hosts = four_twenty;
  hosts.gpus_per_host = 8;
  const std::string reason = "the published file does not tell its GPUs, or their hosts";
  EXPECT_EQ(reason_of(report, hosts), reason);
  report.arms[0].imported[0].world_size.reset();
  EXPECT_EQ(reason_of(report, four_twenty), reason);
  hosts.price_per_kwh = 0.3;
  EXPECT_NE(reason_of(report, hosts, CostFigure::energy), "");
}

TEST(Cost, IdleGpusOfAHostArePaidWhereTheUserSaysSo) {
  CostRequest request = four_twenty;
  request.gpus_per_host = 8;
  const RunSet set = priced(two_layouts(), request);
  EXPECT_NEAR(mean_of(set, 1, CostFigure::cost), 8 * 4.20 * mean_of(set, 1, CostFigure::hours),
              1e-9);
  EXPECT_THAT(set.cost_notes, Contains(HasSubstr("idle ones up to 8 of each host")));
  EXPECT_THAT(priced(two_layouts(), four_twenty).cost_notes,
              Contains(testing::EndsWith("GPUs are paid as wholes, idle ones not")));
  request.gpus_per_host = 1;  // fewer than it had
  EXPECT_NEAR(mean_of(priced(two_layouts(), request), 1, CostFigure::cost),
              2 * 4.20 * mean_of(set, 1, CostFigure::hours), 1e-9);
}

TEST(Cost, OfJobsOnOneGpuIsThatOfEach) {
  CostRequest request = four_twenty;
  request.price_per_kwh = 0.3;
  const RunSet set = priced(four_jobs(), request);
  const double serial = std::sqrt(990.0 * 1000), slices = std::sqrt(900.0 * 910);
  EXPECT_NEAR(mean_of(set, 1, CostFigure::hours), 1000 / serial, 1e-9) << "in turns: all of it";
  EXPECT_NEAR(mean_of(set, 2, CostFigure::hours), 4 * 1000 / slices, 1e-9);
  EXPECT_NEAR(mean_of(set, 2, CostFigure::cost), 4.20 * 1000 / slices, 1e-9) << "of one GPU";
  EXPECT_NEAR(mean_of(set, 2, CostFigure::energy), 0.5 * 1000 / slices, 1e-9) << "at 500 W";
  EXPECT_NEAR(mean_of(set, 2, CostFigure::energy_cost), 0.15 * 1000 / slices, 1e-9);
}

TEST(Cost, NamesTheCheapestAndTheFastestWithinTheLimits) {
  CostRequest request = four_twenty;
  const auto answer = [&] { return priced(two_layouts(), request).cost_notes.back(); };
  const std::string one = "1x1x1, cost 4.199 (4.198 to 4.200) in 0.9998 (0.9995 to 1.000) h";
  const std::string two = "1x1x2, cost 4.420 (4.419 to 4.421) in 0.5262 (0.5260 to 0.5263) h";
  EXPECT_EQ(answer(), "resnet50 training: cheapest is " + one + "; fastest is " + two);
  request.deadline_hours = 1;  // which the mean of 1x1x1 meets, and its interval does not
  EXPECT_EQ(answer(), "resnet50 training within 1 h: cheapest is " + two + "; fastest is " + two);
  request.budget = 4.3;
  EXPECT_EQ(answer(),
            "resnet50 training within 1 h for at most 4.3: no layout is shown to meet that");
  request.deadline_hours.reset();
  EXPECT_EQ(answer(),
            "resnet50 training for at most 4.3: cheapest is " + one + "; fastest is " + one);
}

TEST(Cost, ArmsOfOtherWorkAreNoChoice) {
  Report report = two_layouts();
  report.arms[1].config = report.invocation.config;
  report.arms[1].config->model = "resnet18";
  EXPECT_THAT(priced(report, four_twenty).cost_notes,
              testing::Each(testing::Not(HasSubstr("cheap"))));
}

TEST(Cost, AChartShowsTimeAgainstCost) {
  const RunSet set = priced(two_layouts(), four_twenty);
  const Chart chart = cost_chart(shown_arms(set));
  EXPECT_THAT(csv_of(chart), HasSubstr("\n\"1x1x1\",measured,point,0.99975"));
  EXPECT_EQ(chart.plots[0].y.title, "cost");
  EXPECT_EQ(chart.table.rows.size(), 2U);
  const RunSet without = set_of(two_layouts());
  EXPECT_EQ(cost_chart(shown_arms(without)).missing, "no arm has both");
  for (const Chart& other : charts_of({without})) EXPECT_NE(other.name, "cost");
}

TEST(Cost, IsARowOfAComparison) {
  RunSet base = made_up_set({{"run", {1000, 1001}}}), next = made_up_set({{"run", {800, 801}}}, 60);
  for (RunSet* side : {&base, &next}) add_costs(*side, four_twenty);
  CompareOptions options;
  options.metrics = {throughput_of_runs, to_string(CostFigure::cost)};
  const Comparison comparison = compare(base, next, options);
  const auto row = [&](const std::string& metric) {
    return *std::ranges::find(comparison.rows, metric, &ComparisonRow::metric);
  };
  const ComparisonRow cost = row("training_cost");
  const Interval& slower = *row("throughput_images_per_second").difference_interval;
  EXPECT_NEAR(*cost.difference, std::sqrt(1000.0 * 1001 / (800.0 * 801)) - 1, 1e-9);
  EXPECT_NEAR(cost.difference_interval->lower, 1 / (1 + slower.upper) - 1, 1e-9);
  EXPECT_NEAR(cost.difference_interval->upper, 1 / (1 + slower.lower) - 1, 1e-9);
  EXPECT_EQ(cost.verdict, Verdict::slower) << "dearer";
}

TEST(Cost, CsvHasThatOfEachRun) {
  std::ostringstream csv;
  print_csv(csv, priced(made_up_report({{"run", {1000}}}), four_twenty));
  EXPECT_THAT(csv.str(), HasSubstr(",complete,training_hours,h,1,"));
  EXPECT_THAT(csv.str(), HasSubstr(",complete,training_cost,currency,4.2,"));
}

TEST(Cost, IsInNoReport) {
  Report report = made_up_report({{"run", {1000}}});
  const std::string before = to_json(report);
  report.arms[0].runs[0].costs[CostFigure::cost] = 1;
  EXPECT_EQ(to_json(report), before);
  EXPECT_TRUE(priced(report, {}).cost_notes.empty());
}

TEST(Cost, OptionsMustGoTogether) {
  const auto refused = [](const CostRequest& request, bool form_has_costs = true) {
    return refusal_of<std::invalid_argument>([&] { check(request, form_has_costs); });
  };
  const std::string needs = "--deadline, --budget and --gpus-per-host need --price-per-gpu-hour";
  EXPECT_EQ(refused({.samples = 1, .epochs = 1}), "--samples and --epochs exclude each other");
  EXPECT_EQ(refused({.deadline_hours = 1}), needs);
  EXPECT_EQ(refused({.price_per_kwh = 1, .budget = 1}), needs);
  EXPECT_EQ(refused({.samples = 1, .gpus_per_host = 1}), needs);
  EXPECT_THAT(refused({.samples = 1}, false), HasSubstr("this form has no costs"));
  EXPECT_EQ(refused({.samples = 1}), "");
  EXPECT_EQ(refused({}, false), "");
}

}  // namespace
}  // namespace nearmetal
