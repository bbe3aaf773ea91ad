#include "reports/text/nearest_word.h"

#include <algorithm>
#include <array>
#include <utility>

namespace nearmetal {
namespace {

constexpr std::array<std::pair<const char*, const char*>, 2> other_names = {
    {{"gpu", "cuda"}, {"bs", "batch"}}};

// Optimal string alignment distance by dynamic programming: distance[i][j] is that of the first i
// letters of `a` and the first j of `b`.
size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<std::vector<size_t>> distance(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) {
    for (size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        distance[i][j] = i + j;
        continue;
      }
      const size_t replaced = distance[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      distance[i][j] = std::min({replaced, distance[i - 1][j] + 1, distance[i][j - 1] + 1});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        distance[i][j] = std::min(distance[i][j], distance[i - 2][j - 2] + 1);
      }
    }
  }
  return distance[a.size()][b.size()];
}

}  // namespace

std::string nearest_word(const std::string& word, const std::vector<std::string>& known) {
  for (const auto& [other_name, meant] : other_names) {
    if (word == other_name && std::ranges::find(known, meant) != known.end()) return meant;
  }
  constexpr size_t longest_word = 64;  // a longer one is no typing mistake
  if (word.size() > longest_word) return "";
  std::string nearest;
  size_t allowed = std::max<size_t>(1, word.size() / 3);
  for (const std::string& candidate : known) {
    const size_t distance = edit_distance(word, candidate);
    if (distance > allowed || (distance == allowed && !nearest.empty())) continue;
    nearest = candidate;
    allowed = distance;
  }
  return nearest;
}

std::string did_you_mean(const std::string& word, const std::vector<std::string>& known) {
  const std::string nearest = nearest_word(word, known);
  return nearest.empty() ? "" : "; did you mean '" + nearest + "'?";
}

}  // namespace nearmetal
