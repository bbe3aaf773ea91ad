// The word that a mistyped one may have been meant to be.
#pragma once

#include <string>
#include <vector>

namespace nearmetal {

/// The known word that is meant by another name, such as cuda by gpu, or that is nearest to `word`
/// by edit distance (Levenshtein, with swapped neighbours as one edit); empty where none is near:
/// at most one edit for each three letters, at least 1.
std::string nearest_word(const std::string& word, const std::vector<std::string>& known);

/// "; did you mean 'x'?", or empty.
std::string did_you_mean(const std::string& word, const std::vector<std::string>& known);

}  // namespace nearmetal
