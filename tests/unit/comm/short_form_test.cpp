#include "comm/layout/short_form.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "comm/layout/layout.h"
#include "tests/support/refusal.h"

namespace nearmetal {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string refusal_of_form(const std::string& text) {
  return refusal_of([&] { parse_short_form(text); });
}

TEST(ShortForm, IsNodesTimesVmsTimesGpus) {
  EXPECT_THAT(parse_short_form("2x3x4"), ElementsAre(JobShape{2, 3, 4}));
  EXPECT_THAT(parse_short_form("(1x1x2)"), ElementsAre(JobShape{1, 1, 2}));
  EXPECT_EQ(parse_short_form("2x3x4").front().ranks(), 24);
}

TEST(ShortForm, HasJobsAtOnce) {
  const JobShape two{1, 1, 2};
  const JobShape one{1, 1, 1};
  EXPECT_THAT(parse_short_form("2*(1x1x2)"), ElementsAre(two, two));
  EXPECT_THAT(parse_short_form("2*1x1x2"), ElementsAre(two, two));
  EXPECT_THAT(parse_short_form("1x1x2+2*(1x1x1)"), ElementsAre(two, one, one));
}

TEST(ShortForm, SaysWhatIsExpectedWhere) {
  EXPECT_THAT(refusal_of_form("1x1"), HasSubstr("'x' is expected after '1x1'"));
  EXPECT_THAT(refusal_of_form("0x1x1"), HasSubstr("a number from 1 to 65536 is expected first"));
  EXPECT_THAT(refusal_of_form("2*(1x1x2"), HasSubstr("')' is expected after '2*(1x1x2'"));
  EXPECT_THAT(refusal_of_form("1x1x2x3"), HasSubstr("'+' or the end is expected after '1x1x2'"));
  EXPECT_THAT(refusal_of_form("256x256x2"), HasSubstr("at most 65536 ranks"));
  EXPECT_THAT(refusal_of_form("4097*1x1x1"), HasSubstr("at most 4096 jobs"));
  for (const char* text : {"", "x", "1x-1x1", "1x1x99999999999999999999", "*1x1x1", "2*2*1x1x1",
                           "1x1x1+", "(1x1x1))", "2*(1x1x1+1x1x2)", "1X1X1", " 1x1x1"}) {
    EXPECT_THAT(refusal_of_form(text), HasSubstr("is expected ")) << text;
  }
}

TEST(ShortForm, IsDistinguishedFromThePathOfAFile) {
  EXPECT_TRUE(looks_like_short_form("2*(1x1x2)"));
  EXPECT_TRUE(looks_like_short_form("1x1"));
  EXPECT_FALSE(looks_like_short_form("1x1x2.json"));
  EXPECT_FALSE(looks_like_short_form("dell"));
}

TEST(CpuList, ReadsAndWritesWhatTheKernelDoes) {
  EXPECT_THAT(parse_cpu_list("0"), ElementsAre(0));
  EXPECT_THAT(parse_cpu_list("8,0-2"), ElementsAre(0, 1, 2, 8));
  for (const char* text : {"0", "0-3", "0-3,8", "1,3,5-6,65535"}) {
    EXPECT_EQ(to_cpu_list(parse_cpu_list(text)), text);
  }
  EXPECT_EQ(to_cpu_list({}), "");
}

TEST(CpuList, RefusesWhatIsNone) {
  for (const char* text : {"", ",", "0,", "-1", "3-1", "0-", "a", "0-3,2", "0x1", "65536", "0--1",
                           " 0", "0-65535,1", "0-65535,0-65535,0-65535", "99999999999999999999"}) {
    EXPECT_THROW(parse_cpu_list(text), std::invalid_argument) << text;
  }
}

TEST(CpuList, IsSplitIntoNeighboursOfNearlyEqualSize) {
  const std::vector<int64_t> cpus = {0, 1, 2, 3, 4};
  EXPECT_THAT(part_of(cpus, 0, 2), ElementsAre(0, 1, 2));
  EXPECT_THAT(part_of(cpus, 1, 2), ElementsAre(3, 4));
  EXPECT_THAT(part_of(cpus, 0, 1), ElementsAre(0, 1, 2, 3, 4));
  EXPECT_THAT(part_of({0, 1}, 2, 3), testing::IsEmpty());
}

}  // namespace
}  // namespace nearmetal
