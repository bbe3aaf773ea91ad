// The corpus of the fuzzer, and whatever it once found, as a test.
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>

#include "tests/support/temporary_folder.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace nearmetal {
namespace {

TEST(FuzzCorpus, NeitherCrashesNorThrows) {
  const std::filesystem::path tests = NM_TESTS_FOLDER;
  int inputs = 0;
  for (const auto& folder : {tests / "fuzz" / "corpus", tests / "data"}) {
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      if (!entry.is_regular_file()) continue;
      SCOPED_TRACE(entry.path().string());
      const std::string text = content_of(entry.path());
      EXPECT_EQ(LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(text.data()), text.size()),
                0);
      ++inputs;
    }
  }
  EXPECT_GE(inputs, 8);
}

}  // namespace
}  // namespace nearmetal
