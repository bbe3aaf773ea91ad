// What a fuzz target reaches with random bytes: the same ones each time.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "tests/fuzz/choices.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace nearmetal {

/// By its grammar.
inline Reach reach_of_random_inputs(int count) {
  const Reach before = reaches.of_grammar;
  std::mt19937 random(1);
  for (int i = 0; i < count; ++i) {
    std::vector<uint8_t> bytes(random() % 256);
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
    LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
  }
  const Reach& after = reaches.of_grammar;
  return {after.inputs - before.inputs, after.past_first - before.past_first,
          after.taken - before.taken};
}

}  // namespace nearmetal
