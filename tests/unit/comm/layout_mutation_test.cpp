// Layout files with bytes changed at random: each is read and placed, or refused in one line.
#include <gtest/gtest.h>

#include <filesystem>
#include <random>
#include <stdexcept>

#include "base/errors.h"
#include "comm/layout/layout_json.h"
#include "comm/layout/placement.h"
#include "tests/support/temporary_folder.h"

namespace nearmetal {
namespace {

using Random = std::mt19937_64;

std::vector<std::string> shipped_files() {
  std::vector<std::string> texts;
  for (const auto& entry : std::filesystem::directory_iterator(NM_LAYOUTS_FOLDER)) {
    texts.push_back(content_of(entry.path()));
  }
  return texts;
}

// One to four changes: bytes replaced, parts removed, doubled or taken from elsewhere.
std::string mutant(std::string text, Random& random) {
  const std::string bytes = std::string("{}[]\",:/*-0123456789ex. \n\\") + '\0' + "\xff\xc3";
  for (uint64_t changes = 1 + random() % 4; changes > 0 && !text.empty(); --changes) {
    const size_t place = random() % text.size();
    const size_t length = 1 + random() % 12;
    const std::string part = text.substr(random() % text.size(), length);
    switch (random() % 4) {
      case 0:
        text[place] = bytes[random() % bytes.size()];
        break;
      case 1:
        text.erase(place, length);
        break;
      case 2:
        text.insert(place, part);
        break;
      default:
        text.replace(place, length, part);
    }
  }
  return text;
}

void expect_one_line(const std::string& reason) {
  EXPECT_FALSE(reason.empty());
  EXPECT_EQ(reason.find('\n'), std::string::npos) << reason;
}

// Whether all of it was taken.
bool is_taken(const std::string& text) {
  try {
    LayoutFile file = layout_from_json(text);
    if (file.hosts.empty()) {
      Host host;
      host.name = "localhost";
      host.gpus = 4;
      file.hosts = {host};
    }
    for (const Layout& layout : file.layouts) place(layout, file.hosts, file.launcher.variables);
    return true;
  } catch (const std::invalid_argument& error) {
    expect_one_line(error.what());
  } catch (const NotSupported& error) {  // a MIG device that is not there
    expect_one_line(error.what());
  }
  return false;
}

TEST(LayoutMutation, IsTakenOrRefusedInOneLine) {
  const std::vector<std::string> files = shipped_files();
  ASSERT_GT(files.size(), 3u);
  Random random(1);
  int taken = 0;
  constexpr int trials = 5000;
  for (int i = 0; i < trials; ++i) {
    SCOPED_TRACE(i);
    if (is_taken(mutant(files[i % files.size()], random))) ++taken;
  }
  // Both must be frequent: changes in remarks and names do no harm.
  EXPECT_GT(taken, trials / 20);
  EXPECT_LT(taken, trials * 19 / 20);
}

}  // namespace
}  // namespace nearmetal
