#include "reports/formats/comparison_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "tests/support/made_up_runs.h"

namespace nearmetal {
namespace {

using testing::HasSubstr;
using testing::Not;

RunSet five_runs(int minute, double scale = 1, const std::string& arm = "run") {
  std::vector<double> runs = {1000, 1004, 996, 1002, 998};
  for (double& throughput : runs) throughput *= scale;
  return made_up_set({{arm, runs}}, minute);
}

TEST(ComparisonText, HoldsEveryRowAndFootnote) {
  const Comparison comparison = compare(five_runs(0), five_runs(60, 0.95), {});
  std::ostringstream text;
  print_comparison(text, comparison, false);
  EXPECT_THAT(text.str(), HasSubstr("SLOWER (1)"));
  EXPECT_THAT(text.str(), HasSubstr("\n(1) the sides were not interleaved"));
  EXPECT_THAT(text.str(), HasSubstr("-5.00 % [-5."));
  EXPECT_THAT(text.str(), HasSubstr("5|5"));
  EXPECT_THAT(text.str(), Not(HasSubstr("\033")));
  std::ostringstream coloured;
  print_comparison(coloured, comparison, true);
  EXPECT_THAT(coloured.str(), HasSubstr("\033[31mSLOWER"));
  EXPECT_EQ(verdict_counts(comparison), "1 SLOWER (within one session)");
}

CompareOptions vm_form() {
  CompareOptions options;
  options.vm_form = true;
  return options;
}

std::string printed(const RunSet& base, const RunSet& next, const CompareOptions& options) {
  std::ostringstream text;
  print_comparison(text, compare(base, next, options), false);
  return text.str();
}

RunSet warning_runs(int minute) {
  RunSet set = made_up_set({{"run", {970, 1030, 1001}}}, minute);
  for (SetRun& run : set.arms[0].runs) {
    run.run.ranks[0].probes.reset();
    run.run.warnings = {{"monitor_shared", "other processes kept 1.5 CPUs busy"},
                        {"vanishing_gradient", "the gradient norm fell ten-fold"}};
  }
  set.arms[0].runs[0].run.warnings.push_back({"drift", "step times changed by 4 %"});
  set.arms[0].runs[1].run.warnings[0].text = "other processes kept 7.1 CPUs busy";
  return set;
}

TEST(ComparisonText, HasALineForTheWarningsOfASide) {
  const std::string text = printed(warning_runs(0), warning_runs(60), {});
  EXPECT_THAT(text,
              HasSubstr(") warnings of the base: other processes kept 1.5 to 7.1 CPUs busy (3 of 3 "
                        "runs); the gradient norm\n    fell ten-fold (3 of 3 runs); step times "
                        "changed by 4 % (1 of 3 runs)\n"));
  EXPECT_THAT(text, HasSubstr(") warnings of the new set: "));
  EXPECT_THAT(text, Not(HasSubstr("monitor_shared")));
  EXPECT_THAT(text, HasSubstr("  INCONCLUSIVE (1-5)\n"));
  EXPECT_THAT(text, HasSubstr(" more runs a side would decide with 80 % chance if the measured "
                              "difference is the true one\n(2) "));
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 112U) << line;
}

TEST(ComparisonText, CallsTheSidesByTheirNames) {
  const std::string text = printed(warning_runs(0), warning_runs(60), vm_form());
  EXPECT_THAT(text, HasSubstr("warnings of bare metal: "));
  EXPECT_THAT(text, HasSubstr("warnings of the VM: "));
  EXPECT_THAT(text, Not(HasSubstr("base")));
  EXPECT_THAT(text, Not(HasSubstr("new")));
}

TEST(ComparisonText, PublishedFiguresAreOfGpus) {
  RunSet vm = five_runs(60);
  EXPECT_THAT(printed(five_runs(0), vm, vm_form()), HasSubstr("published: "));
  for (SetRun& run : vm.arms[0].runs) run.run.device = Device::cpu;
  EXPECT_THAT(printed(five_runs(0), vm, vm_form()), Not(HasSubstr("published: ")));
}

TEST(ComparisonText, ShowsTheMetricWhereItIsNotThroughputAlone) {
  const std::string alone = printed(five_runs(0), five_runs(60), {});
  EXPECT_THAT(alone, HasSubstr("base, images/s [95 %]"));
  EXPECT_THAT(alone, Not(HasSubstr("  of  ")));
  CompareOptions both;
  both.metrics = {"throughput_images_per_second", "median_step_seconds"};
  EXPECT_THAT(printed(five_runs(0), five_runs(60), both), HasSubstr("median_step_seconds, ms  "));
}

TEST(ComparisonText, NamesFromReportsCannotSteerTerminalOrMarkdown) {
  const std::string hostile = "a|b<img src=x>\033[2J\n# c\u009b1m\u202emoc\u2066\ufffe\x9b é";
  const Comparison comparison = compare(five_runs(0, 1, hostile), five_runs(60, 1, hostile), {});
  std::ostringstream text;
  print_comparison(text, comparison, false);
  EXPECT_THAT(text.str(), Not(HasSubstr("\033")));
  EXPECT_THAT(text.str(), Not(HasSubstr("\n# c")));
  EXPECT_THAT(text.str(), HasSubstr("?# c?1m?moc???"));
  EXPECT_THAT(text.str(), HasSubstr(" é  ")) << "what is a letter stays";
  std::ostringstream markdown;
  print_comparison_markdown(markdown, comparison);
  EXPECT_THAT(markdown.str(), Not(HasSubstr("<img")));
  EXPECT_THAT(markdown.str(), HasSubstr("a\\|b&lt;img"));
}

}  // namespace
}  // namespace nearmetal
