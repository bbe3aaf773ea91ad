// Whether ranks computed the same, to the last bit, as those should that train the same
// network by the same kernels on devices of one model.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "reports/document/types.h"

namespace nearmetal {

/// A rank whose bits are not those of ranks like it, in some of an arm's runs. Step and what are of
/// the first of these, or the first that is certain.
struct WrongBits {
  int64_t rank = 0;
  int64_t step = 0;      // the first that differs
  std::string what{};    // "loss", which comes first, or the first parameter in the graph
  bool certain = false;  // else it may be right, and ranks like it wrong
  int64_t runs = 1;      // in which it is wrong
  std::optional<bool> permanent{};  // in all of its runs, by the same bits; none: it has one alone
};

/// The model of each rank's device, as "H200, 132 multiprocessors"; no entry: not known.
std::map<int64_t, std::string> device_models(const Run& run,
                                             const std::vector<Environment>& environments);

/// By ranks, from the digests of each run; ranks keep their devices. Of ranks alike the largest
/// group is right, and all others are wrong; where two are largest all are listed. Ranks whose
/// device or kernels are not known are like no others.
std::vector<WrongBits> wrong_bits(std::span<const std::vector<DigestGroup>> runs,
                                  const std::map<int64_t, std::string>& models);

}  // namespace nearmetal
