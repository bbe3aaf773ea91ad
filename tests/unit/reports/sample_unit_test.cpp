// The input of a run gives its figures their names, from keys of the report to axes of charts.
#include "models/sample_unit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "base/errors.h"
#include "bench/run/table.h"
#include "bench/sweep/sweep_report.h"
#include "reports/formats/benchmark_text.h"
#include "reports/formats/charts/charts.h"
#include "reports/formats/charts/throughput_charts.h"
#include "reports/formats/comparison_json.h"
#include "reports/formats/comparison_text.h"
#include "reports/formats/report_text.h"
#include "reports/json/event_json.h"
#include "reports/json/json.h"
#include "reports/sharing/fraction_tables.h"
#include "tests/support/made_up_runs.h"
#include "tests/support/made_up_shares.h"

namespace nearmetal {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::ThrowsMessage;

Report of_sequences(Report report) {
  report.invocation.config.model = "transformer";
  for (Arm& arm : report.arms) {
    for (Run& run : arm.runs) run.sample = SampleUnit::sequence;
  }
  return report;
}

RunSet three_runs(int first_minute) {
  return set_of(of_sequences(made_up_report({{"1x1", {1000, 1004, 1002}}}, first_minute)));
}

template <class Print>
std::string printed(const Print& print) {
  std::ostringstream text;
  print(text);
  return text.str();
}

const auto says_sequences = testing::AllOf(HasSubstr("sequences/s"), Not(HasSubstr("images")));

TEST(SampleUnit, NamesTheKeysOfAReport) {
  Report report = of_sequences(sample_report());
  nearmetal::Run& run = report.arms[0].runs[0];
  run.ranks[0].monitoring->samples_per_joule = 3.5;
  run.jobs = {{.ranks = 1, .throughput = 640.5, .sample = SampleUnit::sequence},
              {.ranks = 1, .throughput = 639.5, .sample = SampleUnit::sequence}};
  const std::string text = to_json(report);
  for (const char* key :
       {"\"sample\": \"sequence\"", "\"throughput_sequences_per_second\": 1280.0",
        "\"throughput_sequences_per_second\": 640.5", "\"sequences\": 512", "\"sequences\": 16",
        "\"sequences_per_joule\": 3.5", "\"flops_per_sequence\": 24000000000.0"}) {
    EXPECT_THAT(text, HasSubstr(key));
  }
  EXPECT_THAT(text, Not(HasSubstr("images")));
  EXPECT_EQ(to_json(report_from_json(text)), text);
  EXPECT_EQ(report_from_json(text).arms[0].runs[0].sample, SampleUnit::sequence);
}

TEST(SampleUnit, OfAReportMustBeKnownAndMatchItsKeys) {
  const auto reading = [](const std::string& from, const std::string& to) {
    std::string text = to_json(of_sequences(sample_report()));
    text.replace(text.find(from), from.size(), to);
    return [text] { report_from_json(text); };
  };
  EXPECT_THAT(reading("\"sample\": \"sequence\"", "\"sample\": \"token\""),
              ThrowsMessage<InvalidReport>("/arms/0/runs/0/sample must be image or sequence"));
  EXPECT_THAT(
      reading("\"sample\"", "\"other\""),
      ThrowsMessage<InvalidReport>("/arms/0/runs/0/throughput_images_per_second must be there"));
}

TEST(SampleUnit, GoesWithoutSayingForImages) {
  EXPECT_THAT(to_json(sample_report()), Not(HasSubstr("\"sample\"")));
}

TEST(SampleUnit, AJobReportsItToItsSweep) {
  Event event;
  event.kind = EventKind::progress;
  event.sample = SampleUnit::sequence;
  event.samples_per_second = 12;
  const std::string line = to_json_line(event);
  EXPECT_THAT(line, HasSubstr("\"sequences_per_second\":12.0"));
  EXPECT_EQ(event_from_json(line).samples_per_second, 12);
}

TEST(SampleUnit, IsInTheTableOfARun) {
  const Report report = of_sequences(sample_report());
  const std::string text = printed(
      [&](std::ostream& out) { print_summary(out, report, report.arms[0].runs[0], false); });
  EXPECT_THAT(text, HasSubstr("1280.0 sequences/s"));
  EXPECT_THAT(text, HasSubstr("on 16 sequences (bound:"));
  EXPECT_THAT(text, Not(HasSubstr("images")));
}

TEST(SampleUnit, IsInEveryFormOfAReport) {
  const RunSet set = three_runs(0);
  const std::string markdown = printed([&](std::ostream& out) { print_markdown(out, set); });
  EXPECT_THAT(markdown, HasSubstr("throughput_sequences_per_second, sequences/s"));
  EXPECT_THAT(markdown, says_sequences);
  const std::string csv = printed([&](std::ostream& out) { print_csv(out, set); });
  EXPECT_THAT(csv, HasSubstr(",throughput_sequences_per_second,sequences/s,1000,"));
  EXPECT_THAT(csv, says_sequences);
  EXPECT_THAT(printed([&](std::ostream& out) { print_junit(out, set); }),
              HasSubstr(" / throughput_sequences_per_second\" value=\"1000\""));
  const std::string go = printed([&](std::ostream& out) { print_go_benchmark(out, set); });
  EXPECT_THAT(go, HasSubstr("Unit sequences/s better=higher\n"));
  EXPECT_THAT(go, HasSubstr(" ns/op 1000 sequences/s\n"));
  EXPECT_THAT(go, says_sequences);
  const std::string prometheus = printed([&](std::ostream& out) { print_prometheus(out, set); });
  EXPECT_THAT(prometheus, HasSubstr("# TYPE nearmetal_throughput_sequences_per_second gauge\n"));
  EXPECT_THAT(prometheus, Not(HasSubstr("images")));
  EXPECT_THAT(github_action_benchmark_json(set), HasSubstr("\"unit\": \"sequences/s\""));
}

TEST(SampleUnit, IsOnTheAxisOfCharts) {
  const Chart chart = throughput_chart(shown_arms(three_runs(0)));
  EXPECT_THAT(svg_element(chart), says_sequences);
  EXPECT_EQ(chart.table.columns[1].title, "sequences/s [95 %]");
  for (const Chart& shown : fraction_charts(set_of(of_sequences(four_jobs())))) {
    if (!shown.missing.empty()) continue;
    EXPECT_THAT(shown.title + svg_element(shown), Not(HasSubstr("images"))) << shown.name;
  }
}

TEST(SampleUnit, IsInTablesOfSweepsAndShares) {
  EXPECT_THAT(printed([](std::ostream& out) { print_sweep(out, of_sequences(sample_report())); }),
              says_sequences);
  std::string titles;
  for (const TitledTable& shown : fraction_tables(set_of(of_sequences(four_jobs())))) {
    for (const auto& column : shown.table.columns) titles += column.title + "\n";
    titles += shown.legend + "\n";
  }
  EXPECT_THAT(titles, HasSubstr("sequences/s [95 %]\n"));
  EXPECT_THAT(titles, HasSubstr("sequences/J\n"));
  EXPECT_THAT(titles, HasSubstr("each job: sequences/s of the slowest"));
  EXPECT_THAT(titles, Not(HasSubstr("images")));
}

TEST(SampleUnit, NamesTheMetricOfAComparison) {
  const Comparison comparison = compare(three_runs(0), three_runs(60), {});
  ASSERT_EQ(comparison.rows.size(), 1U);
  EXPECT_EQ(comparison.rows[0].metric, "throughput_sequences_per_second");
  EXPECT_TRUE(comparison.rows[0].difference);
  const std::string text =
      printed([&](std::ostream& out) { print_text(out, page_of(comparison)); });
  EXPECT_THAT(text, HasSubstr("base, sequences/s [95 %]"));
  EXPECT_THAT(text, Not(HasSubstr("images")));
  const std::string json = to_json(comparison, std::nullopt, ExitCode::ok);
  EXPECT_THAT(json, HasSubstr("\"unit\": \"sequences/s\""));
  EXPECT_THAT(json, Not(HasSubstr("images")));
}

TEST(SampleUnit, RunsOfDifferentUnitsAreNotComparable) {
  const RunSet images = made_up_set({{"1x1", {1000, 1004, 1002}}});
  EXPECT_EQ(compare(images, three_runs(60), {}).rows[0].verdict, Verdict::not_comparable);
  CompareOptions options;
  options.allow_differ = {"model"};
  const Comparison allowed = compare(images, three_runs(60), options);
  EXPECT_EQ(allowed.rows[0].verdict, Verdict::not_comparable);
  EXPECT_FALSE(allowed.rows[0].difference);
  options.metrics = {"median_step_seconds"};
  EXPECT_TRUE(compare(images, three_runs(60), options).rows[0].base_side.geometric_mean);
}

TEST(SampleUnit, EachArmIsComparedInItsOwn) {
  const auto both = [](int minute) {
    RunSet set = made_up_set({{"a", {500, 502}}}, minute);
    add_runs(set, of_sequences(made_up_report({{"b", {20, 21}}}, minute)), "other");
    return set;
  };
  const Comparison comparison = compare(both(0), both(60), {});
  EXPECT_THAT(comparison.options.metrics, testing::ElementsAre("throughput_images_per_second",
                                                               "throughput_sequences_per_second"));
  EXPECT_EQ(comparison.rows.size(), 2U);
  for (const ComparisonRow& row : comparison.rows) EXPECT_TRUE(row.difference) << row.arm;
  EXPECT_EQ(words_of(units_of(both(0))).rate, std::string("samples/s"));
  const std::string prometheus =
      printed([&](std::ostream& out) { print_prometheus(out, both(0)); });
  EXPECT_THAT(prometheus, HasSubstr("nearmetal_throughput_images_per_second{arm=\"a\""));
  EXPECT_THAT(prometheus, HasSubstr("nearmetal_throughput_sequences_per_second{arm=\"b\""));
  EXPECT_THAT(prometheus, Not(HasSubstr("nearmetal_throughput_images_per_second{arm=\"b\"")));
}

}  // namespace
}  // namespace nearmetal
