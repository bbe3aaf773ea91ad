#include "bench/run/consensus.h"

#include <array>

namespace nearmetal {
namespace {

class InStep : public Consensus {
 public:
  explicit InStep(World& world) : world_(world) {}

  Wish agree(Wish mine) override {
    std::array<int64_t, 2> values{!mine.ready, mine.stop};
    world_.maximum(values);
    return {.ready = values[0] == 0, .stop = values[1] != 0};
  }
  int64_t agree_steps(int64_t mine) override {
    std::array<int64_t, 1> steps{mine};
    world_.maximum(steps);
    return steps[0];
  }

 private:
  World& world_;
};

class EachAtItsPace : public Consensus {
 public:
  explicit EachAtItsPace(World& world) : world_(world) {}

  Wish agree(Wish mine) override {
    if (!asked_ && (mine.ready || mine.stop)) {
      world_.start_maximum(mine.stop ? 1 : 0);
      asked_ = true;
    }
    if (!asked_) return {};
    const auto anyone_stops = world_.started_maximum();
    if (!anyone_stops) return {};
    asked_ = false;
    return {.ready = *anyone_stops == 0, .stop = *anyone_stops != 0};
  }
  int64_t agree_steps(int64_t mine) override { return mine; }

 private:
  World& world_;
  bool asked_ = false;
};

}  // namespace

std::unique_ptr<Consensus> make_consensus(World& world, bool in_step) {
  if (in_step) return std::make_unique<InStep>(world);
  return std::make_unique<EachAtItsPace>(world);
}

}  // namespace nearmetal
