// Whether ranks and runs computed the same, to the last bit, as those should that train the same
// network by the same kernels on devices of one model.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "reports/compare/run_set.h"

namespace nearmetal {

struct ArmPair;  // reports/compare/compare.h

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

/// not_asked: nothing says that they should be the same.
enum class BitsVerdict { same, not_asked, differ };
constexpr auto names_of(BitsVerdict) { return std::array{"same", "not asked", "differ"}; }

/// The bits of an arm on both sides.
struct SameBits {
  std::string arm;
  BitsVerdict verdict = BitsVerdict::same;
  std::string reason{};          // why they are not asked, or may differ
  std::vector<int64_t> steps{};  // that were compared
  int64_t parameters = 0;
  int64_t first_step = 0;                // that differs; 0: none
  std::vector<std::string> differing{};  // in that step, as WrongBits::what
};

/// `other`: in what else the sides differ on which bits depend, or empty. Throws NotComparable
/// where one has no digests.
SameBits same_bits(const ArmPair& pair, const RunSet& base, const RunSet& next,
                   const std::string& other);

}  // namespace nearmetal
