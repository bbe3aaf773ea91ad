#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>

#include "reports/compare/compare.h"
#include "reports/compare/run_set.h"
#include "tests/support/made_up_runs.h"

namespace nearmetal {
namespace {

TEST(Builds, CompareDistinguishesTwoBuildsOfACommit) {
  RunSet base = made_up_set({{"run", {1000, 1004, 996, 1002, 998}}});
  RunSet next = made_up_set({{"run", {1001, 1003, 997, 1000, 999}}}, 60);
  for (auto& [set, digit] : {std::pair{&base, '1'}, {&next, '2'}}) {
    for (SetRun& run : set->arms[0].runs) {
      run.tool.git_commit = std::string(40, 'a');
      run.tool.dirty = false;
      run.tool.build_id = std::string(64, digit);
    }
  }
  const ComparisonRow row = compare(base, next, {}).rows.at(0);
  const auto note = std::ranges::find(row.notes, "different_tool", &Warning::code);
  ASSERT_NE(note, row.notes.end());
  EXPECT_THAT(note->text, testing::HasSubstr("build ID 111111111111 | "));
  EXPECT_THAT(note->text, testing::EndsWith("build ID 222222222222"));
  for (RunSet* set : {&base, &next}) {
    set->arms[0].runs[0].tool.build_id = std::string(64, '3');
    set->arms[0].runs[1].tool.build_id = std::string(64, '4');
    set->arms[0].runs[2].tool.build_id = std::string(64, '3');
    set->arms[0].runs[3].tool.build_id = set->arms[0].runs[4].tool.build_id = std::string(64, '4');
  }
  EXPECT_THAT(compare(base, next, {}).rows.at(0).notes,
              testing::Contains(testing::Field(&Warning::code, "mixed_tools")));
}

}  // namespace
}  // namespace nearmetal
