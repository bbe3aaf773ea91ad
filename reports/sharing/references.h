// The arms that one whose jobs share a GPU is compared with.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "reports/compare/run_set.h"

namespace nearmetal {

class References {
 public:
  /// `any_batch`: arms of other batches do the same work, too.
  References(const RunSet& set, bool any_batch);

  /// The arms that share and report how fast they were, in the order of the set; of unlike jobs the
  /// whole.
  const std::vector<const RunArm*>& arms() const { return arms_; }

  /// The unlike jobs of an arm, each by itself; empty: its jobs are alike.
  std::vector<const RunArm*> unlike_jobs_of(const RunArm& arm) const;

  /// Whether they did the same work on the same hardware, each job with as many ranks.
  bool same_context(const RunArm& a, const RunArm& b) const;

  /// The first arm that did the same work as `arm`, undisturbed, and whose jobs share so; null:
  /// there is none.
  const RunArm* find(const RunArm& arm,
                     const std::function<bool(const ArmShare& share)>& wanted) const;

  // For each job of an arm the one that did its work alone; null: there is none.
  /// On the whole GPU.
  std::vector<const RunArm*> alone(const RunArm& arm) const;
  /// On the same share of it.
  std::vector<const RunArm*> alone_on_shares(const RunArm& arm) const;

 private:
  using Wanted = std::function<bool(const ArmShare& share)>;

  const RunArm* find_in(const std::string& context, const Wanted& wanted) const;
  std::vector<const RunArm*> alone_where(
      const RunArm& arm, const std::function<bool(const ArmShare&, size_t job)>& wanted) const;
  std::string context_of(const RunArm& arm) const { return context_of(arm, *arm.share); }
  std::string context_of(const RunArm& arm, const ArmShare& share) const;
  std::string ranks_of_jobs(const RunArm& arm) const;
  std::string boards_of(const RunArm& arm, const ArmShare& share) const;
  bool is_on_a_part(const RunArm& arm) const;

  const RunSet& set_;
  bool any_batch_;
  std::vector<const RunArm*> arms_;
};

}  // namespace nearmetal
