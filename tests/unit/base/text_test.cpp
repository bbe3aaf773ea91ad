#include "base/text.h"

#include <gtest/gtest.h>

#include <sstream>
#include <utility>

#include "base/text_table.h"

namespace nearmetal {
namespace {

TEST(Text, AFigureKeepsItsDigitsWhateverItsInterval) {
  EXPECT_EQ(with_interval(1412.6, {1406.2, 1420}), "1412.6 [1406.2, 1420.0]");
  EXPECT_EQ(with_interval(9472, {9116, 9841}), "9472 [9116, 9841]");
  EXPECT_EQ(with_interval(0.41, {0.006, 27.3}), "0.41 [0.01, 27.30]");
  EXPECT_EQ(with_interval(1.9, {0.1, 270}), "1.9 [0.1, 270.0]");
  EXPECT_EQ(with_interval(0, {-27, 27}), "0 [-27, 27]");
  EXPECT_EQ(signed_percent(-0.01642, {-0.0217, -0.011}), "-1.64 % [-2.17, -1.10]");
  EXPECT_EQ(signed_percent(0.00003, {0.00002, 0.00004}), "+0.0030 % [+0.0020, +0.0040]");
  EXPECT_EQ(signed_percent(3.1, {-0.9, 20}), "+310.00 % [-90.0, +2000.0]");
  EXPECT_EQ(with_interval(345, {1e-50, 1.5e53}), "345 [0, 1.500e+53]") << "no figure of 54 digits";
}

TEST(Text, FactsAreReadInTheUnitOfTheirName) {
  EXPECT_EQ(readable_fact("gpus/0/memory_bytes", "150109880320"), "150.1 GB");
  EXPECT_EQ(readable_fact("memory_bytes", "2000, (none), 17"), "2.000 kB, (none), 17 B");
  EXPECT_EQ(readable_fact("sm_clock_hertz", "1980000000"), "1.980 GHz");
  EXPECT_EQ(readable_fact("memory_bytes", "1.5 GB"), "1.5 GB");
  EXPECT_EQ(readable_fact("multiprocessors", "132"), "132");
}

TEST(Text, WhatSteersATerminalOrTheLogOfACiIsNotShown) {
  const std::pair<const char*, const char*> cases[] = {
      {"\x1b[1m\x7f\n", "?[1m??"},
      {"\xc2\x9b \xe2\x80\xae \xff", "? ? ?"},
      {"::error::text", "?:error::text"},
      {"a  ::set-output name=b::c", "a  ?:set-output name=b::c"},
      {"\xc2\xa0::Error::a", "\xc2\xa0?:Error::a"},
      {"::::error::", "::?:error::"},
      {"a ##[error]b ##vso[task.complete]", "a ?#[error]b ?#vso[task.complete]"},
      {"fe80::1, ::1, std::vector::size, # [a], ##", "fe80::1, ::1, std::vector::size, # [a], ##"},
      {"\xc3\xa9 \xc2\xb5s", "\xc3\xa9 \xc2\xb5s"},
  };
  for (const auto& [text, shown] : cases) EXPECT_EQ(printable(text), shown);
}

TEST(Text, TheTitleOfATableIsOneLineOfMarkdown) {
  std::ostringstream out;
  print_markdown(out, TitledTable{.title = "Stages of a\n::error::*", .table = {{{"arm"}}, {}}});
  EXPECT_EQ(out.str(), "Stages of a??:error::\\*:\n\n| arm |\n| :--- |\n\n");
}

TEST(Text, JsonReadsBackWhatItDoesNotShow) {
  EXPECT_EQ(printable_json("{\n\"\xc2\x9b\xe2\x80\xae\x7f\": \"##[error]\"\n}"),
            "{\n\"\\u009b\\u202e\\u007f\": \"\\u0023#[error]\"\n}");
}

TEST(Text, AnExactNumberHasNoMoreDigitsThanItTakes) {
  for (const auto& [value, text] : {std::pair(0.1, "0.1"),
                                    {0.02340815, "0.02340815"},
                                    {1.0 / 3, "0.3333333333333333"},
                                    {0.1 + 0.2, "0.30000000000000004"},
                                    {100'000.0, "100000"}}) {
    EXPECT_EQ(exact(value), text);
  }
}

}  // namespace
}  // namespace nearmetal
