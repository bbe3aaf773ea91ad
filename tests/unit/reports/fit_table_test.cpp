#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "base/text_table.h"

namespace nearmetal {
namespace {

using testing::ElementsAre;

const TextTable sample{
    {{"row"},
     {"base, images/s", true},
     {"p (t)", true, true},
     {"p (rank)", true, true},
     {"verdict"}},
    {{"one job on two GPUs", "10561 [10525, 10597]", "0.0312", "0.1000", "INCONCLUSIVE (1-5)"},
     {"two", "9", "-", "-", "FASTER"}}};

std::string printed(size_t columns) {
  std::ostringstream out;
  if (columns > 0) limit_columns(out, columns);
  print_aligned(out, sample);
  return out.str();
}

TEST(FitTable, ATableThatFitsStaysAsItIs) {
  EXPECT_EQ(printed(120), printed(0));
  EXPECT_THAT(fit(sample, 120).columns, ElementsAre(0, 1, 2, 3, 4));
}

TEST(FitTable, LeavesOutFromTheRightWhatATableCanDoWithout) {
  EXPECT_THAT(fit(sample, 78).columns, ElementsAre(0, 1, 2, 4));
  EXPECT_THAT(fit(sample, 68).columns, ElementsAre(0, 1, 4));
}

TEST(FitTable, SaysWhatHadNoRoom) {
  TextTable table = sample;
  table.columns[2] = {"scaling, batch", false, true};
  const auto printed_in = [&](size_t columns) {
    std::ostringstream out;
    limit_columns(out, columns);
    print_aligned(out, TitledTable{"Rows", table, "a legend"});
    return out.str();
  };
  EXPECT_THAT(printed_in(68), testing::HasSubstr("\nno room for: scaling, batch\na legend\n"));
  EXPECT_THAT(printed_in(120), testing::Not(testing::HasSubstr("no room")));
  EXPECT_THAT(printed_in(20), testing::Not(testing::HasSubstr("no room"))) << "a list has all";
  table = sample;
  EXPECT_THAT(printed_in(68), testing::Not(testing::HasSubstr("no room"))) << "p-values alone";
}

TEST(FitTable, ColumnsWithoutAFigureCanBeTakenOut) {
  TextTable table{{{"row"}, {"GB", true}, {"W", true}, {"job has"}},
                  {{"-", "-", "1", ""}, {"b", "-", "-", ""}}};
  leave_out_empty_columns(table);
  ASSERT_EQ(table.columns.size(), 2U);
  EXPECT_EQ(table.columns[1].title, "W");
  EXPECT_THAT(table.rows, ElementsAre(ElementsAre("-", "1"), ElementsAre("b", "-")));
  table.rows.clear();
  leave_out_empty_columns(table);
  EXPECT_EQ(table.columns.size(), 2U) << "no row says nothing of its columns";
}

TEST(FitTable, MakesTheWidestColumnsNarrowerButNoneThanItsLongestWord) {
  EXPECT_THAT(fit(sample, 60).widths, ElementsAre(19, 19, 18));
  EXPECT_THAT(fit(sample, 10).widths, ElementsAre(4, 8, 12));
}

TEST(FitTable, BreaksAWordThatIsTooLongForTheTable) {
  const TextTable wide{{{"row"}, {"of"}}, {{std::string(56, 'a'), "throughput_images_per_second"}}};
  EXPECT_EQ(fit(wide, 60).widths[0] + fit(wide, 60).widths[1], 58);
  EXPECT_THAT(wrap_cell("throughput_images_per_second, ms", 14),
              ElementsAre("throughput_", "images_per_", "second, ms"));
}

TEST(FitTable, WordsGoOnBelow) {
  EXPECT_EQ(printed(60),
            "row                       base, images/s  verdict\n"
            "one job on two GPUs        10561 [10525,  INCONCLUSIVE (1-5)\n"
            "                                  10597]  \n"
            "two                                    9  FASTER\n");
  EXPECT_THAT(wrap_cell("10561 [10525, 10597]", 16), ElementsAre("10561 [10525,", "10597]"));
  EXPECT_THAT(wrap_cell("", 4), ElementsAre(""));
}

TEST(FitTable, ATableThatIsTooWideEvenSoIsAListOfEachRow) {
  EXPECT_EQ(printed(26),
            "row: one job on two GPUs\n"
            "  base, images/s: 10561\n"
            "    [10525, 10597]\n"
            "  p (t): 0.0312\n"
            "  p (rank): 0.1000\n"
            "  verdict: INCONCLUSIVE\n"
            "    (1-5)\n"
            "row: two\n"
            "  base, images/s: 9\n"
            "  verdict: FASTER\n");
}

TEST(FitTable, ALineGoesOnBelowItsWordsWhereThereIsALimit) {
  std::ostringstream wide;
  print_line(wide, std::string(120, 'a') + " b\n", "blocker  ");
  EXPECT_EQ(wide.str(), "blocker  " + std::string(120, 'a') + " b?\n");
  std::ostringstream out;
  limit_columns(out, 40);
  print_line(out, "no driver is loaded, so that runs train elsewhere", "blocker  ");
  print_line(out, "a line as long as forty columns are, yes");
  EXPECT_EQ(out.str(),
            "blocker  no driver is loaded, so that\n"
            "         runs train elsewhere\n"
            "a line as long as forty columns are, yes\n");
}

TEST(FitTable, RemarksTakeTheSameWidth) {
  std::ostringstream out;
  limit_columns(out, 60);
  print_wrapped(out, std::string(58, 'a') + " b c");
  EXPECT_EQ(out.str(), std::string(58, 'a') + " b\n    c\n");
}

}  // namespace
}  // namespace nearmetal
