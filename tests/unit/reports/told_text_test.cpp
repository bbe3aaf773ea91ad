// Sentences that values make, and what is read back from those of earlier reports.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "reports/document/warning.h"

namespace nearmetal {
namespace {

TEST(ToldText, NamesWhoGaveAWarning) {
  const Warning warning{
      .code = "drift", .text = "it drifts", .job = 1, .rank = 2, .stage = 0, .host = "vm0"};
  EXPECT_EQ(attributed_text(warning), "job 2: rank 2, stage 0 (vm0): it drifts");
  EXPECT_THAT(givers_of(warning), testing::ElementsAre("job 2", "rank 2, stage 0 (vm0)"));
  EXPECT_EQ(attributed_text({"drift", "it drifts"}), "it drifts");
}

TEST(ToldText, IsReadBackWithAndWithoutTheValuesBesideIt) {
  const Warning warnings[] = {
      {.code = "a", .text = "x"},
      {.code = "a", .text = "x", .job = 0},
      {.code = "a", .text = "x: y (z): ", .rank = 12, .host = "a.b"},
      {.code = "a", .text = "", .job = 3, .rank = 0, .stage = 1, .host = ""}};
  for (const Warning& warning : warnings) {
    Warning earlier{.code = "a", .text = ""};
    set_attributed_text(attributed_text(warning), earlier);
    EXPECT_EQ(earlier, warning) << attributed_text(warning);
    Warning beside = warning;
    beside.text.clear();
    set_attributed_text(attributed_text(warning), beside);
    EXPECT_EQ(beside, warning);
  }
}

TEST(ToldText, OfAMonitorsVerdictTheWorstReasonIsTheFigure) {
  Warning warning{.code = "monitor_shared", .text = ""};
  set_attributed_text(
      "rank 1 (vm0): in the timed window: the hypervisor gave 39.1 % of the CPUs' time to "
      "others (steal); other processes kept 1.99 CPUs busy",
      warning);
  EXPECT_EQ(warning.rank, 1);
  EXPECT_EQ(warning.figure->unit, FigureUnit::share);
  EXPECT_NEAR(warning.figure->value, 0.391, 1e-12);
  EXPECT_EQ(warning.figure->limit, 0.01);
  set_attributed_text("in the timed window: cpu_hertz is not known: no file",
                      warning = {"monitor_unknown", ""});
  EXPECT_EQ(warning.figure, std::nullopt);
}

TEST(ToldText, WhatOnlyLooksLikeAGiverIsOfTheText) {
  for (const char* text : {"job x: y", "job 1", "rank 1: y", "rank 1 (a", "rank  1 (a): y",
                           "job 0: x", "job -5: x", "rank -1 (a): x", ""}) {
    Warning warning;
    set_attributed_text(text, warning);
    EXPECT_EQ(warning, (Warning{.code = "", .text = text}));
  }
}

TEST(MonitorText, OfEveryKindIsReadBackAsItsValues) {
  for (const MonitorReasonKind& kind : monitor_reason_kinds()) {
    MonitorReason reason{.code = kind.code, .figure = Figure{4, kind.limit, kind.unit}};
    if (reason.code == "clock_changed") reason.subject = "sm_clock_hertz";
    EXPECT_EQ(reason_from(text_of(reason)), reason) << text_of(reason);
  }
  const MonitorReason lost{.code = "unknown", .subject = "cpu_steal_share", .why = "no /proc/stat"};
  EXPECT_EQ(text_of(lost), "cpu_steal_share is not known: no /proc/stat");
  EXPECT_EQ(reason_from(text_of(lost)), lost);
}

TEST(MonitorText, ASentenceOfNoKindIsKeptAndHasNoFigure) {
  for (const char* sentence :
       {"clocks lowered by the driver for heat", "-3 things", "",
        "other processes kept many CPUs busy", "other processes kept inf CPUs busy"}) {
    const MonitorReason reason = reason_from(sentence);
    EXPECT_EQ(reason.code, "unknown");
    EXPECT_EQ(reason.figure, std::nullopt);
    EXPECT_EQ(text_of(reason), sentence);
  }
}

TEST(Figures, AreWorseTheFurtherTheyAreAboveTheirLimit) {
  const Figure steal{0.391, 0.01, FigureUnit::share}, others{1.99, 0.5, FigureUnit::cpus};
  EXPECT_TRUE(is_worse(steal, others));
  EXPECT_FALSE(is_worse(others, steal));
  EXPECT_TRUE(is_worse({-0.3, 0.1, FigureUnit::share}, {0.2, 0.1, FigureUnit::share}));
  EXPECT_TRUE(is_worse({1, 0, FigureUnit::count}, steal)) << "none may be";
  EXPECT_TRUE(is_worse({7, 0, FigureUnit::count}, {1, 0, FigureUnit::count}));
  EXPECT_FALSE(is_worse({0, 0, FigureUnit::count}, {0, 1, FigureUnit::count}));
  EXPECT_EQ(figures_text({1.741, 0.5, FigureUnit::cpus}, others), "1.74 to 1.99 CPUs");
  EXPECT_EQ(figures_text(others, others), "1.99 CPUs");
  EXPECT_EQ(figure_text({-0.026, 0.02, FigureUnit::share}), "-2.60 %");
  EXPECT_EQ(figure_text({12, 0, FigureUnit::count}), "12");
}

}  // namespace
}  // namespace nearmetal
