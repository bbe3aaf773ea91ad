// What the ranks of a job decide together after every step.
#pragma once

#include <cstdint>
#include <memory>

#include "comm/world.h"

namespace nearmetal {

struct Wish {
  bool ready = false;  // for what comes next: the timed window, or the end
  bool stop = false;   // early
};

class Consensus {
 public:
  virtual ~Consensus() = default;
  /// To be called by every rank after each of its steps: `ready` once all ranks are, `stop` once
  /// one of them wants to.
  virtual Wish agree(Wish mine) = 0;
  /// How many steps the timed window has: of ranks that run in step, the most that one asks for.
  virtual int64_t agree_steps(int64_t mine) = 0;
};

/// `in_step`: every rank takes the same steps and gets each answer at the same one, as an exchange
/// of gradients asks for. Else no rank waits for another: each takes steps until all are ready.
std::unique_ptr<Consensus> make_consensus(World& world, bool in_step);

}  // namespace nearmetal
