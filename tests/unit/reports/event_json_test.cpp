#include "reports/json/event_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/errors.h"

namespace nearmetal {
namespace {

Event failure(std::optional<FailureCode> code) {
  Event event;
  event.kind = EventKind::failure;
  event.failure = Failure{code, 2, "host a has none"};
  return event;
}

std::string replaced(std::string text, const std::string& old, const std::string& by) {
  return text.replace(text.find(old), old.size(), by);
}

TEST(EventJson, AFailureKeepsItsCode) {
  std::vector<std::optional<FailureCode>> codes = {std::nullopt};
  for (const char* name : names_of(FailureCode{})) codes.push_back(from_name<FailureCode>(name));
  for (const auto& code : codes) {
    const Event read = event_from_json(to_json_line(failure(code)));
    EXPECT_EQ(read.kind, EventKind::failure);
    ASSERT_TRUE(read.failure.has_value());
    EXPECT_EQ(read.failure->code, code);
    EXPECT_EQ(read.failure->exit_code, 2);
    EXPECT_EQ(read.failure->text, "host a has none");
  }
}

TEST(EventJson, ACodeOfAnotherVersionIsNone) {
  const std::string line = to_json_line(failure(FailureCode::expect_gpu));
  const Event read = event_from_json(replaced(line, "expect-gpu", "expect-quiet"));
  EXPECT_EQ(read.failure->code, std::nullopt);
  EXPECT_EQ(read.failure->text, "host a has none");
}

TEST(EventJson, AVersionThatReportsNoFailuresHasNone) {
  Event event;
  event.kind = EventKind::result;
  const std::string line = to_json_line(event);
  EXPECT_THAT(line, testing::Not(testing::HasSubstr("failure")));
  EXPECT_FALSE(event_from_json(line).failure.has_value());
}

}  // namespace
}  // namespace nearmetal
