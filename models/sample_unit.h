// The unit in which a network takes its input: throughput is counted in it, and reports name it.
#pragma once

#include <algorithm>
#include <iterator>
#include <span>

#include "base/names.h"

namespace nearmetal {

enum class SampleUnit { image, sequence };
inline constexpr SampleUnit sample_units[] = {SampleUnit::image, SampleUnit::sequence};

struct UnitWords {
  const char* singular;
  const char* plural;
  const char* rate;  // a unit of throughput, as tables show it
  const char* per_joule;
  // Keys of a report, of which `throughput` is also the name of a metric and `plural` a count.
  const char* throughput_key;
  const char* per_joule_key;
  const char* per_second_key;
  const char* flops_key;
};

// In the order of SampleUnit; the last where several units have one title.
inline constexpr UnitWords words_of_units[] = {
    {"image", "images", "images/s", "images/J", "throughput_images_per_second", "images_per_joule",
     "images_per_second", "flops_per_image"},
    {"sequence", "sequences", "sequences/s", "sequences/J", "throughput_sequences_per_second",
     "sequences_per_joule", "sequences_per_second", "flops_per_sequence"},
    {"sample", "samples", "samples/s", "samples/J", "throughput_samples_per_second",
     "samples_per_joule", "samples_per_second", "flops_per_sample"},
};

constexpr const UnitWords& words_of(SampleUnit unit) {
  return words_of_units[static_cast<int>(unit)];
}
constexpr auto names_of(SampleUnit) {
  return std::array{words_of(SampleUnit::image).singular, words_of(SampleUnit::sequence).singular};
}
/// For one title over all of them; images where there are none.
constexpr const UnitWords& words_of(std::span<const SampleUnit> units) {
  if (units.empty()) return words_of(SampleUnit::image);
  const bool same = std::all_of(units.begin(), units.end(),
                                [&](SampleUnit unit) { return unit == units.front(); });
  return same ? words_of(units.front()) : words_of_units[std::size(sample_units)];
}

}  // namespace nearmetal
