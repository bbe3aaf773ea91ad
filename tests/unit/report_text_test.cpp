#include "reports/report_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "reports/chart.h"
#include "reports/html.h"
#include "tests/unit/made_up_runs.h"

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

RunSet hostile_set() {
  RunSet set = made_up_set({{"=cmd()|<b>\"x\"&\n\x01", {1000, 1002}}});
  set.arms[0].runs[0].run.warnings = {{"drift", "<script>alert(1)</script>"}};
  set.arms[0].runs[1].run.status = Status::failed;
  set.arms[0].runs[1].run.failure = "\"]]>\x02<boom/>";
  set.arms[0].runs[1].source = "-x,\"y\".json";
  return set;
}

TEST(ReportText, MarkdownHasARowForEachArmAndMetric) {
  const std::string text = text_of(markdown, made_up_set({{"1x1", {1000, 1010, 990}}}));
  EXPECT_THAT(text, HasSubstr("| 1x1 | throughput\\_images\\_per\\_second, images/s | 1000 "));
  EXPECT_THAT(text, HasSubstr("| 1x1 | set\\_up\\_seconds, s | 2.885 | 3 |"));
  EXPECT_THAT(text_of(markdown, hostile_set()), Not(HasSubstr("<script")));
}

TEST(ReportText, CsvIsLongAndKeepsEveryDigit) {
  const std::string text = text_of(print_csv, made_up_set({{"1x1", {1000.1}}}));
  EXPECT_THAT(text, HasSubstr("source,arm,started_at,status,metric,unit,value\r\n"));
  EXPECT_THAT(text, HasSubstr("\"made up\",\"1x1\",2026-01-31T00:00:00Z,complete,"
                              "throughput_images_per_second,images/s,1000.1"));
  const std::string hostile = text_of(print_csv, hostile_set());
  EXPECT_THAT(hostile, HasSubstr("\"'=cmd()|<b>\"\"x\"\"&"));
  EXPECT_THAT(hostile, HasSubstr("\"'-x,\"\"y\"\".json\""));
}

TEST(ReportText, JunitTellsErrorsAndEscapes) {
  const std::string text = text_of(print_junit, hostile_set());
  EXPECT_THAT(text, HasSubstr("tests=\"2\" errors=\"1\" skipped=\"0\""));
  EXPECT_THAT(text, HasSubstr("<error message=\"&quot;]]&gt;?&lt;boom/&gt;\"/>"));
  EXPECT_THAT(text, HasSubstr("<property name=\"throughput_images_per_second\" value=\"1000\"/>"));
}

TEST(Html, EscapesWhatReportsHold) {
  std::ostringstream text;
  const RunSet set = hostile_set();
  print_html(text, set, {{throughput_chart(set).caption, "<?xml?><svg></svg>"}});
  EXPECT_THAT(text.str(), HasSubstr("=cmd()|&lt;b&gt;&quot;x&quot;&amp;??"));
  EXPECT_THAT(text.str(), HasSubstr("&lt;script&gt;"));
  EXPECT_THAT(text.str(), Not(HasSubstr("<script")));
  EXPECT_THAT(text.str(), Not(HasSubstr("<?xml")));
  EXPECT_THAT(text.str(), HasSubstr("default-src 'none'"));
}

TEST(Chart, HoldsDataAndNoCommandOfANameOfAnArm) {
  const RunSet set = made_up_set({{"`touch x`\"\nset output 'y'\nEOD $(z) @w", {1000, 1010}}});
  const std::string script = throughput_chart(set).script;
  EXPECT_THAT(script, HasSubstr("\"_touch x___set output _y__EOD _(z) _w\" 1\n"));
  EXPECT_THAT(script, HasSubstr("set yrange [0:*]")) << "bars start at zero";
  EXPECT_EQ(throughput_chart(RunSet{}).script, "") << "nothing to draw";
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
