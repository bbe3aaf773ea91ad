// What each rank of a launch command starts.
#pragma once

#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

namespace nearmetal {

// The words that each rank's program is started with: the job's, or of a shell that chooses among
// them by the rank, with those behind in the place of "$@".
inline std::vector<std::vector<std::string>> words_of_ranks(const std::vector<std::string>& words,
                                                            size_t ranks) {
  if (words.front() != "sh") return std::vector(ranks, words);
  std::vector<std::vector<std::string>> found(ranks);
  const std::vector<std::string> common(words.begin() + 4, words.end());
  std::istringstream text(words.at(2));
  std::string word, numbers;
  text >> word >> word >> word;  // case $OMPI_COMM_WORLD_RANK in
  while (text >> numbers && numbers != "*)") {
    std::vector<std::string> own;
    text >> word;
    EXPECT_EQ(word, "exec");
    for (bool last = false; !last && text >> word;) {
      last = word.ends_with(";;");
      if (last) word.resize(word.size() - 2);
      if (word == "\"$@\"") {
        own.insert(own.end(), common.begin(), common.end());
      } else if (!word.empty()) {
        own.push_back(word);
      }
    }
    numbers.back() = '|';
    for (size_t bar; (bar = numbers.find('|')) != std::string::npos; numbers.erase(0, bar + 1)) {
      found.at(std::stoull(numbers)) = own;
    }
  }
  return found;
}

}  // namespace nearmetal
