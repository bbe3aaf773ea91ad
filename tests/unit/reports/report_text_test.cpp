#include "reports/formats/report_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "base/errors.h"
#include "base/text.h"
#include "base/text_table.h"
#include "reports/compare/work_text.h"
#include "reports/formats/benchmark_text.h"
#include "tests/support/made_up_runs.h"

namespace nearmetal {
namespace {

using testing::HasSubstr;
using testing::Not;

template <class Print>
std::string text_of(const Print& print, const RunSet& set) {
  std::ostringstream text;
  print(text, set);
  return text.str();
}

void markdown(std::ostream& out, const RunSet& set) { print_markdown(out, set); }

void junit(std::ostream& out, const RunSet& set) { print_junit(out, set); }

RunSet hostile_set() {
  RunSet set = made_up_set({{"=cmd()|<b>\"x\"&\n\x01", {1000, 1002}}});
  set.arms[0].runs[0].run.warnings = {{"drift", "<script>alert(1)</script>"}};
  set.arms[0].runs[1].run.status = Status::failed;
  set.arms[0].runs[1].run.failure = "\"]]>\x02<boom/>\ufffe\uffff";
  set.arms[0].runs[1].source = "-x,\"y\".json";
  return set;
}

TEST(ReportText, MarkdownHasARowForEachArmAndMetric) {
  const std::string text = text_of(markdown, made_up_set({{"1x1", {1000, 1010, 990}}}));
  EXPECT_THAT(text, HasSubstr("| 1x1 | throughput_images_per_second, images/s | 1000 "));
  EXPECT_THAT(text, HasSubstr("| 1x1 | set_up_seconds, s | 2.885 | 3 |"));
  EXPECT_THAT(text_of(markdown, hostile_set()), Not(HasSubstr("<script")));
}

TEST(ReportText, AReasonForRunsThatAreLeftOutIsOneLine) {
  RunSet set = made_up_set({{"1x1", {1000, 1010, 1020}}, {"1x2", {2000, 2010}}});
  for (RunArm& arm : set.arms) {
    for (SetRun& run : arm.runs) {
      run.run.status = Status::failed;
      run.run.failure = "out of memory";
    }
  }
  EXPECT_THAT(run_warnings(set), testing::ElementsAre("2 arms: 5 runs of made up are left out: "
                                                      "failed (out of memory)"));
  EXPECT_THAT(text_of([](auto& out, const auto& runs) { print_text(out, runs); }, set),
              HasSubstr("\nNo run is complete\n"));
}

TEST(ReportText, SaysWhatWasMeasured) {
  RunSet set = made_up_set({{"run", {1000, 1010}}});
  const std::string line =
      "resnet50 training, fp16, batch 256, 224x224, NVIDIA H200, host host, 2026-01-31";
  EXPECT_EQ(work_line(set), line);
  EXPECT_THAT(text_of(markdown, set),
              testing::StartsWith(line + "\n\n**run: 1005 (1000 to 1010) images/s in 2 runs**"));
  EXPECT_THAT(text_of(print_github_summary, set), HasSubstr("## nearmetal\n\n" + line));
  Report other = made_up_report({{"run", {20}}}, 60);
  other.invocation.config.model = "resnet18";
  other.invocation.config.forward_only = true;
  other.arms[0].runs[0].started_at = "2026-02-02T00:00:00Z";
  other.environments[0].host_name = "(left out)";
  add_runs(set, other, "other");
  EXPECT_EQ(work_line(set),
            "resnet50 training | resnet18 forward, fp16, batch 256, 224x224, NVIDIA H200, "
            "host host, 2026-01-31 to 2026-02-02");
  set.environments = {other.environments[0]};
  EXPECT_THAT(work_line(set), Not(HasSubstr("host")));
  EXPECT_EQ(work_line({}), "");
}

TEST(ReportText, NamesRunsThatAreLeftOut) {
  RunSet set = made_up_set({{"run", {1000, 1010}}});
  set.arms[0].runs[0].run.status = Status::failed;
  set.arms[0].runs[0].run.failure = "out of memory";
  EXPECT_THAT(run_warnings(set),
              testing::ElementsAre("run: a run of made up is left out: failed (out of memory)"));
  EXPECT_THAT(text_of(markdown, set), HasSubstr("out of memory"));
}

TEST(ReportText, MeansOfDifferentWorkAreRefused) {
  RunSet set = made_up_set({{"run", {1000, 1010, 990}}, {"other", {1000, 1010}}});
  EXPECT_NO_THROW(require_same_work(set));
  Report larger = made_up_report({{"other", {2000}}});
  larger.invocation.config.batch = 777;
  add_runs(set, larger, "larger");
  EXPECT_THROW(require_same_work(set), NotComparable);
}

TEST(ReportText, CsvIsLongAndKeepsEveryDigit) {
  const std::string text = text_of(print_csv, made_up_set({{"1x1", {1000.1}}}));
  EXPECT_THAT(
      text,
      HasSubstr("source,arm,started_at,status,metric,unit,value,"
                "model,device,precision,batch,forward_only,inference,ranks,against,kind\r\n"));
  EXPECT_THAT(text, HasSubstr("\"made up\",\"1x1\",2026-01-31T00:00:00Z,complete,"
                              "throughput_images_per_second,images/s,1000.1"));
  const std::string hostile = text_of(print_csv, hostile_set());
  EXPECT_THAT(hostile, HasSubstr("\"'=cmd()|<b>\"\"x\"\"&"));
  EXPECT_THAT(hostile, HasSubstr("\"'-x,\"\"y\"\".json\""));
}

// Arms of 1 and 2 ranks, and one that has no other to be compared with.
RunSet scaling_set() {
  Report report = made_up_report({{"1x1x1", {100, 102}}, {"1x1x2", {190, 194}}, {"other", {7}}});
  for (Run& run : report.arms[1].runs) run.world_size = 2;
  report.arms[2].config = report.invocation.config;
  report.arms[2].config->image_size = 32;
  RunSet set;
  add_runs(set, report, "made up");
  return set;
}

void text(std::ostream& out, const RunSet& set) { print_text(out, set); }

TEST(ReportText, ShowsHowThroughputScales) {
  const std::string shown = text_of(text, scaling_set());
  EXPECT_THAT(shown, HasSubstr("\n'1x1x2' has 1.90 [1.79, 2.02]"));
  EXPECT_THAT(shown, HasSubstr(" times the throughput of one rank of '1x1x1': 95"));
  EXPECT_THAT(shown, HasSubstr("1x1x2   2         2  192.0 (190.0 to 194.0)  1.90 [1.79, 2.02]"));
  const std::string table = text_of(markdown, scaling_set());
  EXPECT_THAT(table,
              HasSubstr("| layout | ranks | runs | images/s [95 %] | speedup | efficiency |"));
  EXPECT_THAT(table,
              HasSubstr("| 1x1x1 | 1 | 2 | 101.0 (100.0 to 102.0) | - | - | weak, 256 a rank | "
                        "reference |"));
  EXPECT_THAT(text_of(text, made_up_set({{"1x1x1", {100, 102}}})), Not(HasSubstr("speedup")));
}

TEST(ReportText, OfSeveralArmsItListsFiguresWhereTheyAreAskedFor) {
  RunSet set = scaling_set();
  for (const auto print : {text, markdown}) {
    const std::string answer = text_of(print, set);
    EXPECT_THAT(answer, HasSubstr("speedup"));
    EXPECT_THAT(answer, HasSubstr("all figures: --metric all"));
    EXPECT_THAT(answer, Not(HasSubstr("set_up_seconds")));
  }
  set.metrics = {"all"};
  EXPECT_THAT(text_of(markdown, set), HasSubstr("| 1x1x2 | set_up_seconds, s |"));
  EXPECT_THAT(text_of(markdown, set), Not(HasSubstr("p99_step_seconds"))) << "of few steps";
  set.metrics = {"median_step_seconds", "throughput"};
  EXPECT_THAT(text_of(markdown, set), HasSubstr("| 1x1x2 | median_step_seconds, ms |"));
  EXPECT_THAT(text_of(markdown, set), Not(HasSubstr("set_up_seconds")));
  set.metrics = {"p99_step_seconds"};
  EXPECT_THAT(text_of(markdown, set), HasSubstr("its window has 2 steps, fewer than 100"));
}

TEST(ReportText, OfArmsThatDoNotScaleEachHasAHeadline) {
  EXPECT_THAT(
      text_of(text, made_up_set({{"a", {100, 102, 101, 100}}, {"b", {7}}})),
      HasSubstr("\na: 100.7 [99.2, 102.3] images/s in 4 runs\nb: 7.000 images/s in 1 run\n"));
}

TEST(ReportText, DoubtsTheReferenceWhereMoreThanSpreadIsBeyondLinear) {
  const auto doubts = [](const std::vector<double>& of_two_ranks) {
    Report report = made_up_report({{"1x1x1", {100, 102}}, {"1x1x2", of_two_ranks}});
    for (auto& run : report.arms[1].runs) run.world_size = 2;
    RunSet set;
    add_runs(set, report, "made up");
    return text_of(text, set).find("(check the reference)") != std::string::npos;
  };
  EXPECT_FALSE(doubts({190, 194}));
  EXPECT_FALSE(doubts({203, 205})) << "within the spread";
  EXPECT_TRUE(doubts({303, 305}));
  EXPECT_TRUE(doubts({205})) << "whose spread is not known";
}

TEST(ReportText, LatencyIsPrintedWhereARunHasIt) {
  RunSet set = made_up_set({{"1x1", {100, 102}}});
  for (const auto print : {text, print_csv, print_prometheus, junit}) {
    EXPECT_THAT(text_of(print, set), Not(HasSubstr("latency")));
  }
  for (SetRun& run : set.arms[0].runs) {
    run.run.ranks[0].latency = Latency{1000, 0.002, 0.003, Unknown{"fewer than 100 steps"}};
  }
  EXPECT_THAT(text_of(text, set), HasSubstr("median_latency_seconds, ms"));
  EXPECT_THAT(text_of(print_csv, set), HasSubstr(",p95_latency_seconds,s,0.003,"));
  EXPECT_THAT(text_of(print_csv, set), HasSubstr(",p99_latency_seconds,s,,"));
  EXPECT_THAT(text_of(print_prometheus, set), HasSubstr("nearmetal_median_latency_seconds{"));
  EXPECT_THAT(text_of(junit, set), HasSubstr("p95_latency_seconds"));
}

TEST(ReportText, CsvAndPrometheusHaveSpeedupAndRanks) {
  const std::string csv = text_of(print_csv, scaling_set());
  EXPECT_THAT(csv, HasSubstr("\"\",\"1x1x2\",,complete,speedup,1,1.90"));
  EXPECT_THAT(csv, HasSubstr("\"\",\"1x1x2\",,complete,efficiency_upper,1,"));
  EXPECT_THAT(csv, HasSubstr(",\"no\",\"no\",2,\"1x1x1\",measured\r\n"));
  EXPECT_THAT(csv, Not(HasSubstr("\"1x1x1\",,complete")));
  const std::string metrics = text_of(print_prometheus, scaling_set());
  EXPECT_THAT(metrics, testing::ContainsRegex(
                           "nearmetal_speedup\\{arm=\"1x1x2\".*,against=\"1x1x1\"\\} 1\\.90"));
  EXPECT_THAT(metrics, testing::ContainsRegex("nearmetal_efficiency_interval\\{arm=\"1x1x2\".*,"
                                              "bound=\"lower\"\\} 0\\."));
  EXPECT_THAT(metrics, testing::ContainsRegex("nearmetal_ranks\\{arm=\"1x1x2\".*\\} 2\n"));
  EXPECT_THAT(metrics, Not(HasSubstr("nearmetal_speedup{arm=\"1x1x1\"")));
}

TEST(ReportText, MarkdownEscapesWhatItWouldTakeForMoreThanText) {
  for (const char* plain : {"throughput_images_per_second, images/s", "1413 [1406, 1420]",
                            "(within one session) <0.0001", "-6.1 % + 2 = 4", "A & B; 1.5 s",
                            "a: b", "95.6 % of 4 ranks."}) {
    EXPECT_EQ(markdown_escaped(plain), plain);
  }
  EXPECT_EQ(markdown_escaped("2*(1x1x1) | _a_ `b` ~c~ $d$"),
            "2\\*(1x1x1) \\| \\_a\\_ \\`b\\` \\~c\\~ \\$d\\$");
  EXPECT_EQ(markdown_escaped("[a](b) ![c] @d #5"), "\\[a\\](b) !\\[c\\] \\@d \\#5");
  EXPECT_EQ(markdown_escaped("<b>&lt;"), "&lt;b>&amp;lt;");
  EXPECT_EQ(markdown_escaped("# a"), "\\# a");
  EXPECT_EQ(markdown_escaped("12. a"), "12\\. a");
  EXPECT_EQ(markdown_escaped("- a"), "\\- a");
  EXPECT_EQ(markdown_escaped("> a"), "&gt; a");
}

TEST(ReportText, JunitHasErrorsAndEscapes) {
  const std::string text = text_of(junit, hostile_set());
  EXPECT_THAT(text, HasSubstr("tests=\"2\" failures=\"0\" errors=\"1\" skipped=\"0\""));
  EXPECT_THAT(text, HasSubstr("<error type=\"error\" message=\"&quot;]]&gt;?&lt;boom/&gt;??\"/>"));
  EXPECT_THAT(text, HasSubstr(" / throughput_images_per_second\" value=\"1000\"/>"));
}

TEST(ReportText, GoBenchmarksAreLinesOfWordsAndNumbers) {
  const std::string text = text_of(print_go_benchmark, made_up_set({{"1x2 a-4", {1000, 1024}}}));
  EXPECT_THAT(text, HasSubstr("pkg: nearmetal\nUnit images/s better=higher\nkind: measured\n"));
  EXPECT_THAT(text, HasSubstr("batch: 256\n"));
  EXPECT_THAT(text, HasSubstr("BenchmarkTrain/arm=1x2%20a%2D4 2 256000000 ns/op 1000 images/s\n"));
  EXPECT_THAT(text, HasSubstr(" 2 250000000 ns/op 1024 images/s\n"));
  EXPECT_THAT(text_of(print_go_benchmark, hostile_set()), HasSubstr("arm=%3Dcmd()|%3Cb%3E%22"));
}

TEST(ReportText, GoBenchmarksEndASettingThatALaterRunLacks) {
  Report inference = made_up_report({{"a", {1000}}});
  inference.invocation.config.inference = true;
  RunSet set;
  add_runs(set, inference, "made up");
  add_runs(set, made_up_report({{"b", {1000}}}), "made up");
  EXPECT_THAT(text_of(print_go_benchmark, set),
              testing::ContainsRegex("\ninference: yes\n(.*\n)*BenchmarkTrain/arm=a .*\n"
                                     "inference:\nBenchmarkTrain/arm=b "));
}

TEST(ReportText, PrometheusKeepsNamesThatCannotBeShownApart) {
  const std::string text = text_of(print_prometheus, made_up_set({{"\1 a", {1}}, {"\2 a", {1}}}));
  EXPECT_THAT(text, HasSubstr("nearmetal_ranks{arm=\"%01%20a\""));
  EXPECT_THAT(text, HasSubstr("nearmetal_ranks{arm=\"%02%20a\""));
}

TEST(ReportText, PrometheusEscapesLabels) {
  Report report = made_up_report({{"a\"\n\\", {1000, 1010}}});
  report.invocation.config.model = "m\"\n\\";
  RunSet set;
  add_runs(set, report, "made up");
  const std::string text = text_of(print_prometheus, set);
  const std::string labels =
      "{arm=\"a\\\"\\n\\\\\",model=\"m\\\"\\n\\\\\",device=\"cuda\",precision=\"fp16\",batch="
      "\"256\","
      "forward_only=\"no\",inference=\"no\"";
  EXPECT_THAT(text, HasSubstr("# TYPE nearmetal_throughput_images_per_second gauge\n"
                              "nearmetal_throughput_images_per_second" +
                              labels + "} 1004."));
  EXPECT_THAT(text, HasSubstr("nearmetal_runs" + labels + ",complete=\"yes\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("nearmetal_last_run_timestamp_seconds" + labels + "} 1769817660\n"));
  EXPECT_THAT(
      text, HasSubstr("nearmetal_arm_info" + labels + ",kind=\"measured\",world_size=\"1\"} 1\n"));
  EXPECT_EQ(text_of(print_prometheus, {}), "");
}

TEST(ReportText, JsonOfOtherToolsHoldsEachRunOrArm) {
  RunSet set = made_up_set({{"a", {1000, 1024, 1000}}, {"b", {10}}});
  set.arms[0].runs[2].run.status = Status::partial;
  const std::string google = google_benchmark_json(set);
  EXPECT_THAT(google, HasSubstr("\"repetitions\": 2"));
  EXPECT_THAT(google, HasSubstr("\"real_time\": 250.0"));
  const std::string action = github_action_benchmark_json(set);
  EXPECT_THAT(action, HasSubstr("\"value\": 1011.92"));
  EXPECT_THAT(action, HasSubstr("\"name\": \"a (resnet50 training, fp16, batch 256)\""));
  EXPECT_THAT(action, HasSubstr("n = 1, 95 % interval; device cuda: NVIDIA H200"));
  EXPECT_EQ(github_action_benchmark_json({}), "[]\n");
}

TEST(ReportText, LongListsAreCutAfterAWord) {
  EXPECT_EQ(shortened("580, 590"), "580, 590");
  EXPECT_EQ(shortened(std::string(150, 'a') + ", bbbb, cccc, dddd"),
            std::string(150, 'a') + ", bbbb, ...");
  EXPECT_LE(shortened(std::string(5000, 'x')).size(), 165U);
}

TEST(ReportText, TheSummaryOfGithubIsCutBelowItsLimit) {
  std::vector<std::pair<std::string, std::vector<double>>> arms;
  for (int i = 0; i < 3000; ++i) arms.push_back({std::string(60, 'a') + std::to_string(i), {1, 2}});
  const std::string text = text_of(print_github_summary, made_up_set(arms));
  EXPECT_LT(text.size(), size_t{1} << 20);
  EXPECT_THAT(text, HasSubstr("Cut here"));
  EXPECT_THAT(text_of(print_github_summary, made_up_set({{"a", {1}}})), Not(HasSubstr("Cut here")));
}

}  // namespace
}  // namespace nearmetal
