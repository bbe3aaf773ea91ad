#include "reports/formats/comparison_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "reports/formats/headline.h"
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
  print_text(text, page_of(comparison));
  EXPECT_THAT(text.str(), HasSubstr("SLOWER (1)"));
  EXPECT_THAT(text.str(), HasSubstr("\n(1) the sides were not interleaved"));
  EXPECT_THAT(text.str(), HasSubstr("-5.00 % [-5."));
  EXPECT_THAT(text.str(), HasSubstr("5|5"));
  EXPECT_THAT(text.str(), Not(HasSubstr("\033")));
  std::ostringstream coloured;
  print_text(coloured, page_of(comparison), true);
  EXPECT_THAT(coloured.str(), HasSubstr("\033[31mSLOWER"));
  EXPECT_EQ(verdict_counts(comparison), "1 SLOWER (within one session)");
}

RunSet on_bare_metal(RunSet set) {
  for (Environment& machine : set.environments) {
    machine.hypervisor_cpu_flag = false;
    machine.virtualisation.machine = MachineKind::bare_metal;
  }
  return set;
}

CompareOptions vm_form() {
  CompareOptions options;
  options.form = ComparisonForm::vm;
  return options;
}

std::string printed(const RunSet& base, const RunSet& next, const CompareOptions& options) {
  std::ostringstream text;
  print_text(text, page_of(compare(base, next, options)));
  return text.str();
}

RunSet warning_runs(int minute) {
  RunSet set = made_up_set({{"run", {970, 1030, 1001}}}, minute);
  for (SetRun& run : set.arms[0].runs) {
    run.run.ranks[0].probes.reset();
    run.run.ranks[0].monitoring->verdict = MonitorVerdict::shared;
    run.run.warnings = {{"monitor_shared", "other processes kept 1.5 CPUs busy",
                         Figure{1.5, 0.5, FigureUnit::cpus}},
                        {"vanishing_gradient", "the gradient norm fell ten-fold"}};
  }
  set.arms[0].runs[0].run.warnings.push_back({"drift", "step times changed by 4 %"});
  set.arms[0].runs[1].run.warnings[0] = {"monitor_shared", "other processes kept 7.1 CPUs busy",
                                         Figure{7.1, 0.5, FigureUnit::cpus}};
  return set;
}

TEST(ComparisonText, HasALineForTheWarningsOfASide) {
  const std::string text = printed(warning_runs(0), warning_runs(60), {});
  EXPECT_THAT(text,
              HasSubstr(") warnings of the base: other processes kept 7.1 CPUs busy (3 of 3 runs, "
                        "1.50 to 7.10 CPUs); the\n    gradient norm fell ten-fold (3 of 3 runs); "
                        "step times changed by 4 % (1 of 3 runs)\n"));
  EXPECT_THAT(text, HasSubstr(") warnings of the new set: "));
  EXPECT_THAT(text, Not(HasSubstr("monitor_shared")));
  EXPECT_THAT(text, HasSubstr("  INCONCLUSIVE (1-5)\n"));
  EXPECT_THAT(text,
              HasSubstr(" more runs a side (about 5 min) would decide with 80 % chance if the "
                        "measured difference is\n    the true one\n(2) "));
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 112U) << line;
}

TEST(ComparisonText, TheAnswerSaysHowManyRunsWereDisturbed) {
  const auto disturbed = testing::ElementsAre(testing::EndsWith(
      " (within one session; sides not interleaved; other processes disturbed 3 of 8 runs)"));
  EXPECT_THAT(headlines(compare(five_runs(0), warning_runs(60), {})), disturbed);
  const Comparison anchored = compare(five_runs(30), warning_runs(60), {}, five_runs(0));
  ASSERT_EQ(anchored.rows.size(), 2U);
  EXPECT_THAT(headlines(anchored), disturbed) << "each run once";
}

TEST(ComparisonText, TheAnswerSaysFirstThatItCouldNotBeMuchElse) {
  const RunSet base = made_up_set({{"run", {700, 1000, 1300}}});
  const RunSet next = made_up_set({{"run", {750, 1000, 1250}}}, 60);
  EXPECT_THAT(headlines(compare(base, next, {})),
              testing::ElementsAre(testing::EndsWith(
                  ": INCONCLUSIVE (within one session; sides not interleaved; a drop of 10 % would "
                  "not be found with 80 % chance)")));
}

TEST(ComparisonText, BeginsWithWhatWasMeasuredAndTheAnswer) {
  const RunSet metal = on_bare_metal(five_runs(0));
  const std::string text = printed(metal, five_runs(60, 0.94), vm_form());
  EXPECT_THAT(text,
              testing::StartsWith(
                  "resnet50 training, fp16, batch 256, 224x224, NVIDIA H200, host host, "
                  "2026-01-31\nThe VM is slower than bare metal, -6.00 % [-6.35, -5.65]: SLOWER "
                  "(within one session; sides not\n    interleaved)\n\n"));
  EXPECT_THAT(printed(five_runs(0, 0.94), five_runs(60), {}),
              HasSubstr("\nThe new set is faster than the base, +6.38 % [+"));
  EXPECT_THAT(printed(five_runs(0), five_runs(60), {}),
              HasSubstr("\nThe new set differs from the base by 0.00 % [-"));
  RunSet other = five_runs(60);
  other.environments[0].host_name = "vm";
  EXPECT_THAT(printed(metal, other, vm_form()),
              testing::ContainsRegex("^bare metal: resnet50 .*host host, .*\nVM: .* host vm, "));
}

TEST(ComparisonText, ABareSideWithAHypervisorIsCalledThat) {
  RunSet host = five_runs(0);
  host.environments[0].host_name = "host";
  for (const ComparisonForm form : {ComparisonForm::vm, ComparisonForm::container}) {
    CompareOptions options;
    options.form = form;
    const Comparison comparison = compare(host, five_runs(60, 0.94), options);
    EXPECT_THAT(headlines(comparison)[0],
                HasSubstr("slower than the host with a hypervisor, -6.00 "));
    const Page page = comparison_page(host, five_runs(60, 0.94), comparison, "");
    EXPECT_THAT(page.title, testing::EndsWith(" against the host with a hypervisor"));
    EXPECT_EQ(page_of(comparison).tables[0].table.columns[1].title,
              "host with a hypervisor, images/s [95 %]");
  }
  EXPECT_THAT(headlines(compare(host, five_runs(60, 0.94), {}))[0], HasSubstr("than the base, "));
}

TEST(ComparisonText, TheAnswerSaysThatTheMachinesDiffer) {
  RunSet base = five_runs(0), next = five_runs(60);
  base.environments[0].boot_id = next.environments[0].boot_id = std::string("one");
  const auto says_so = [&](ComparisonForm form) {
    CompareOptions options;
    options.form = form;
    return headlines(compare(base, next, options))[0].find("on different machines") !=
           std::string::npos;
  };
  EXPECT_FALSE(says_so(ComparisonForm::sets));
  next.environments[0].host_name = "pod";
  EXPECT_FALSE(says_so(ComparisonForm::container)) << "of the same boot";
  next.environments[0].boot_id = std::string("another");
  next.environments[0].machine_id = std::string("another");
  EXPECT_TRUE(says_so(ComparisonForm::sets));
  EXPECT_TRUE(says_so(ComparisonForm::container));
  EXPECT_FALSE(says_so(ComparisonForm::vm)) << "an operating system of its own";
}

TEST(ComparisonText, WhatThreatensSeveralAnswersIsSaidOnce) {
  CompareOptions options;
  options.metrics = {"throughput", "median_step_seconds"};
  const std::vector<std::string> lines =
      headlines(compare(five_runs(0), five_runs(60, 0.94), options));
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_THAT(lines[0], testing::EndsWith("(within one session; sides not interleaved)"));
  EXPECT_THAT(lines[1], testing::EndsWith("]: SLOWER"));
}

TEST(ComparisonText, OfFewerThanFourRunsItShowsTheRange) {
  const RunSet three = made_up_set({{"run", {1000, 1010, 1030}}}, 60);
  const std::string text = printed(five_runs(0), three, {});
  EXPECT_THAT(text, HasSubstr("  1010 (1000 to 1030)  "));
  EXPECT_THAT(text, HasSubstr("  1000.0 [996.1, 1003.9]  "));
  EXPECT_THAT(text, HasSubstr("take 5"));
  EXPECT_THAT(printed(five_runs(0), five_runs(60), {}), Not(HasSubstr("take 5")));
}

TEST(ComparisonText, TheAnswerOfSeveralRowsIsThatOfTheirMean) {
  RunSet base = five_runs(0, 1, "a"), next = five_runs(60, 0.94, "a");
  base.arms.push_back(five_runs(0, 2, "b").arms[0]);
  next.arms.push_back(five_runs(60, 2, "b").arms[0]);
  EXPECT_THAT(headlines(compare(base, next, {})),
              testing::ElementsAre(testing::AllOf(
                  testing::StartsWith("On the mean of 2 rows the new set is slower than the base, "
                                      "-3.05 % ["),
                  testing::EndsWith("]; row by row: 1 SLOWER, 1 EQUIVALENT (within one "
                                    "session; sides not interleaved)"))));
}

TEST(ComparisonText, TheAnswerSaysWhyThereIsNone) {
  const RunSet one = made_up_set({{"run", {1000}}});
  EXPECT_THAT(headlines(compare(one, made_up_set({{"run", {900}}}, 60), {})),
              testing::ElementsAre("The new set is slower than the base, -10.00 % (no "
                                   "interval: fewer than 2 runs on a side): INCONCLUSIVE"));
  EXPECT_THAT(headlines(compare(made_up_set({{"a", {1}}, {"b", {1}}}), one, {})),
              testing::ElementsAre("a, b: only in the base; run: only in the new set: "
                                   "NOT-COMPARABLE"));
  CompareOptions by_time = vm_form();
  by_time.metrics = {"median_step_seconds"};
  EXPECT_THAT(headlines(compare(on_bare_metal(five_runs(0)), five_runs(60, 0.94), by_time)),
              testing::ElementsAre(
                  testing::StartsWith("median_step_seconds of the VM is higher than of bare "
                                      "metal, +6.38 % [")));
}

TEST(ComparisonText, TheAnswerSaysWhichSideWasEmulated) {
  const auto emulated = [](RunSet set) {
    for (RunArm& arm : set.arms) {
      for (SetRun& run : arm.runs) run.kind = Kind::emulated;
    }
    return set;
  };
  const CompareOptions options = vm_form();
  const RunSet base = on_bare_metal(five_runs(0, 1, "a")), vm = emulated(five_runs(60, 0.94, "a"));
  EXPECT_THAT(headlines(compare(base, vm, options)),
              testing::ElementsAre(testing::StartsWith("The VM (emulated) is slower than bare "
                                                       "metal, -6.00 % [")));
  RunSet two_base = base, two = five_runs(60, 0.94, "a");
  two_base.arms.push_back(five_runs(0, 2, "b").arms[0]);
  two.arms.push_back(five_runs(60, 2, "b").arms[0]);
  EXPECT_THAT(headlines(compare(two_base, emulated(two), options)),
              testing::ElementsAre(testing::StartsWith("On the mean of 2 rows the VM (emulated) is "
                                                       "slower than bare metal, -3.05 % [")));
}

TEST(ComparisonText, CallsTheSidesByTheirNames) {
  const std::string text = printed(on_bare_metal(warning_runs(0)), warning_runs(60), vm_form());
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
  print_text(text, page_of(comparison));
  EXPECT_THAT(text.str(), Not(HasSubstr("\033")));
  EXPECT_THAT(text.str(), Not(HasSubstr("\n# c")));
  EXPECT_THAT(text.str(), HasSubstr("?# c?1m?moc???"));
  EXPECT_THAT(text.str(), HasSubstr(" é  ")) << "what is a letter stays";
  std::ostringstream markdown;
  print_markdown(markdown, page_of(comparison));
  EXPECT_THAT(markdown.str(), Not(HasSubstr("<img")));
  EXPECT_THAT(markdown.str(), HasSubstr("a\\|b&lt;img"));
}

}  // namespace
}  // namespace nearmetal
