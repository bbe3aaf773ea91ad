#include "base/safetensors.h"

#include <gtest/gtest.h>

#include <cstring>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "tests/support/temporary_folder.h"

namespace nearmetal {
namespace {

TEST(Safetensors, HoldsNamesShapesAndValues) {
  const TemporaryFolder folder;
  const std::vector<float> weights = {1, -2, 3, 4, 5, 1e-30f};
  const std::vector<int64_t> count = {7};
  const auto path = folder / "a.safetensors";
  write_safetensors(path, {{"weight", {2, 3}, std::span(weights)}, {"count", {}, std::span(count)}},
                    {{"note", "\"quoted\" \xff"}}, false);
  const std::string content = content_of(path);
  uint64_t length = 0;
  std::memcpy(&length, content.data(), 8);
  const auto header = nlohmann::json::parse(content.substr(8, length));
  EXPECT_EQ(length % 8, 0u);
  EXPECT_EQ(header["__metadata__"]["note"], "\"quoted\" \xef\xbf\xbd");
  EXPECT_EQ(header["weight"],
            (nlohmann::json{{"dtype", "F32"}, {"shape", {2, 3}}, {"data_offsets", {0, 24}}}));
  EXPECT_EQ(header["count"]["dtype"], "I64");
  EXPECT_EQ(header["count"]["shape"], nlohmann::json::array());
  ASSERT_EQ(content.size(), 8 + length + 32);
  EXPECT_EQ(std::memcmp(content.data() + 8 + length, weights.data(), 24), 0);
  EXPECT_EQ(std::memcmp(content.data() + 8 + length + 24, count.data(), 8), 0);
}

TEST(Safetensors, RefusesWhatWouldNotReadBack) {
  const TemporaryFolder folder;
  const std::vector<float> values(6);
  const TensorView good{"a", {6}, std::span(values)};
  const TensorView wrong{"b", {2, 2}, std::span(values)};
  const auto path = folder / "a.safetensors";
  EXPECT_THROW(write_safetensors(path, {good, wrong}, {}, false), std::logic_error);
  EXPECT_THROW(write_safetensors(path, {good, good}, {}, false), std::logic_error);
  EXPECT_FALSE(std::filesystem::exists(path));
}

}  // namespace
}  // namespace nearmetal
