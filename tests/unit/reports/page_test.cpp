#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "reports/formats/comparison_text.h"
#include "reports/formats/report_text.h"
#include "tests/support/made_up_arms.h"

namespace nearmetal {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(Page, OfAComparisonShowsBothSides) {
  const RunSet base = set_of_report(full_report());
  const RunSet next = set_of_report(full_report(60));
  Page page = comparison_page(base, next, compare(base, next, {}), "verdict: none (exit 0)");
  ASSERT_EQ(page.charts.front().name, "difference");
  EXPECT_EQ(page.charts[0].title, "Difference: new against base");
  EXPECT_THAT(csv_of(page.charts[0]), HasSubstr("\"1x2\""));
  EXPECT_THAT(csv_of(page.charts[1]), HasSubstr("\"1x1 to 1x2, base\",measured"));
  EXPECT_EQ(page.tables[0].table.columns[1].title, "verdict");
  std::ostringstream text;
  print_html(text, page);
  EXPECT_THAT(text.str(), HasSubstr("verdict: none (exit 0)"));
  size_t last = 0;
  for (const char* part :
       {"<p>resnet50 training, ", "<p class=\"answer\">On the mean of ", "verdict: none",
        "<h2>Difference: ", "<h2>Throughput: ", "<caption>Comparison</caption>",
        "<h2>Step times, one", "<h2>Remarks</h2>", "<h2>Details</h2>"}) {
    const size_t at = text.str().find(part);
    ASSERT_NE(at, std::string::npos) << part;
    EXPECT_GT(at, last) << part;
    last = at;
  }
  EXPECT_THAT(text.str(), HasSubstr("<svg "));
  EXPECT_THAT(text.str(), Not(HasSubstr("<?xml")));
}

GroupedRuns two_machines() {
  Report report = full_report(60);
  report.environments[0].host_name = "other";
  report.environments[0].gpus[0].memory_bytes = int64_t{80530636800};
  return {.all = {},
          .groups = {{"metal", set_of_report(full_report())}, {"vm", set_of_report(report)}}};
}

TEST(Page, ShowsMachinesSideBySide) {
  const Page page = report_page(two_machines());
  const TextTable& machines = page.tables.back().table;
  ASSERT_EQ(machines.columns.size(), 3U);
  EXPECT_EQ(machines.columns[2].title, "vm");
  EXPECT_THAT(machines.rows, testing::Contains(testing::ElementsAre("host_name", "host", "other")));
  EXPECT_THAT(machines.rows, testing::Contains(testing::ElementsAre("gpus/0/memory_bytes",
                                                                    "150.1 GB", "80.53 GB")));
  EXPECT_THAT(page.work, testing::ElementsAre(testing::StartsWith("metal: resnet50 training, "),
                                              testing::StartsWith("vm: resnet50 training, ")));
  EXPECT_EQ(page.charts[0].name, "throughput");
  EXPECT_THAT(csv_of(page.charts[0]), HasSubstr("\"1x1 to 1x2, vm\",measured"));
  EXPECT_THAT(page.charts[0].table.rows[1][0], testing::EndsWith(", vm"));
}

TEST(Page, SaysWhatWasMeasured) {
  std::ostringstream text;
  print_html(text, report_page({set_of_report(full_report())}));
  EXPECT_THAT(text.str(), HasSubstr("<title>nearmetal: resnet50 training throughput</title>"));
  EXPECT_THAT(text.str(), HasSubstr("</h1>\n<p>resnet50 training, fp16, batch 256, 224x224, "));
  EXPECT_EQ(report_page({}).title, "nearmetal: training throughput");
}

TEST(Page, WithoutChartsShowsTables) {
  std::ostringstream text;
  Page page = report_page({set_of_report(full_report())});
  page.draws_charts = false;
  print_html(text, page);
  EXPECT_THAT(text.str(), Not(HasSubstr("<svg")));
  EXPECT_THAT(text.str(), HasSubstr("<details open>"));
}

TEST(Page, EscapesWhatReportsHold) {
  Report report = full_report();
  report.arms[0].name = "<b>\"x\"&\n\x01";
  report.arms[0].runs[0].warnings = {{"drift", "<script>alert(1)</script>"}};
  report.environments[0].host_name = "<script>alert(2)</script>";
  std::ostringstream text;
  print_html(text, report_page({set_of_report(report)}));
  EXPECT_THAT(text.str(), HasSubstr("&lt;b&gt;&quot;x&quot;&amp;??"));
  EXPECT_THAT(text.str(), HasSubstr("&lt;script&gt;alert(1)"));
  EXPECT_THAT(text.str(), Not(HasSubstr("<script")));
  EXPECT_THAT(text.str(), HasSubstr("default-src 'none'"));
}

}  // namespace
}  // namespace nearmetal
