#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <any>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <variant>

#include "base/errors.h"
#include "bench/cli/process.h"

namespace nearmetal {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

std::string message_of_thrown(const std::function<void()>& throwing) {
  try {
    throwing();
  } catch (const std::exception& error) {
    EXPECT_EQ(exit_code_of(error), ExitCode::run_failed);
    return message_of(error);
  }
  return "";
}

TEST(MessageOf, MistakesOfThisProgramAreSaidToBeBugs) {
  const std::function<void()> mistakes[] = {
      [] { static_cast<void>(std::vector<int>().at(3)); },
      [] { static_cast<void>(std::map<int, int>().at(3)); },
      [] { static_cast<void>(std::string().substr(3)); },
      [] { std::string().resize(std::string().max_size() + 1); },
      [] { static_cast<void>(std::optional<int>().value()); },
      [] { static_cast<void>(std::get<1>(std::variant<int, double>(3))); },
      [] { static_cast<void>(std::any_cast<int>(std::any(3.0))); },
      [] { std::function<void()>()(); },
      [] { throw std::logic_error("no kernel leaves it"); },
  };
  for (const auto& mistake : mistakes) {
    EXPECT_THAT(message_of_thrown(mistake), HasSubstr("this is a bug of nearmetal, please report"));
  }
  EXPECT_THAT(message_of_thrown(mistakes[8]), HasSubstr("no kernel leaves it"));
}

TEST(MessageOf, WhatIsWrittenForUsersStaysAsItIs) {
  EXPECT_EQ(message_of(std::invalid_argument("--batch must be")), "--batch must be");
  EXPECT_EQ(message_of(NotAsExpected(FailureCode::expect_gpu, "another GPU")), "another GPU");
  EXPECT_EQ(message_of(std::runtime_error("no window")), "no window");
}

TEST(MessageOf, MemoryThatLibrariesMissIsSaidInWords) {
  for (const std::string& text :
       {message_of(std::bad_alloc()), message_of(std::bad_array_new_length())}) {
    EXPECT_THAT(text, AllOf(HasSubstr("not enough memory"), HasSubstr("ulimit -v")));
  }
}

TEST(MessageOf, LimitsOfThreadsAndProcessesAreNamed) {
  const std::error_code none_left(EAGAIN, std::generic_category());
  EXPECT_THAT(message_of(std::system_error(none_left)),
              AllOf(HasSubstr("a thread cannot be started"), HasSubstr("ulimit -u")));
  EXPECT_THAT(message_of(std::system_error(none_left, "mpirun cannot be started")),
              AllOf(HasSubstr("mpirun cannot be started"), HasSubstr("pids.max"),
                    Not(HasSubstr("thread cannot"))));
}

TEST(MessageOf, FilesAreNamedFirst) {
  const std::string text =
      message_of_thrown([] { static_cast<void>(std::filesystem::file_size("/not/there")); });
  EXPECT_EQ(text, "/not/there: No such file or directory");
}

}  // namespace
}  // namespace nearmetal
