// What a network is fed, one at a time: throughput is counted in it, and tables and reports name
// it.
#pragma once

#include "models/names.h"

namespace nearmetal {

enum class SampleUnit { image, sequence };

struct UnitWords {
  const char* singular;
  const char* plural;
  const char* rate;  // a unit of throughput, as tables show it
  const char* per_joule;
  // Keys of a report, of which `throughput` is also the name of a metric and `plural` a count.
  const char* throughput_key;
  const char* per_joule_key;
  const char* flops_key;
};

inline constexpr UnitWords words_of_units[] = {
    {"image", "images", "images/s", "images/J", "throughput_images_per_second", "images_per_joule",
     "flops_per_image"},
    {"sequence", "sequences", "sequences/s", "sequences/J", "throughput_sequences_per_second",
     "sequences_per_joule", "flops_per_sequence"},
};

constexpr const UnitWords& words_of(SampleUnit unit) {
  return words_of_units[static_cast<int>(unit)];
}
constexpr auto names_of(SampleUnit) {
  return std::array{words_of(SampleUnit::image).singular, words_of(SampleUnit::sequence).singular};
}

}  // namespace nearmetal
