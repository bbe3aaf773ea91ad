#include "reports/compare/same_bits.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "base/errors.h"
#include "base/text.h"
#include "reports/compare/compare.h"

namespace nearmetal {
namespace {

using Models = std::map<int64_t, std::string>;

// The same for ranks that should compute the same: device, kernels, names of parameters and steps;
// empty where that is not known.
std::string likeness_of(const DigestGroup& group, int64_t rank, const Models& models) {
  const auto model = models.find(rank);
  if (model == models.end() || !group.kernels) return "";
  const auto steps = transformed(group.steps, [](auto& step) { return std::to_string(step.step); });
  return joined({model->second, *group.kernels, joined(group.parameters), joined(steps)}, "; ");
}

// The first step in which like ranks differ, and in what; 0: none.
std::pair<int64_t, std::vector<std::string>> first_difference(const DigestGroup& base,
                                                              const DigestGroup& other) {
  const auto [a, b] = std::ranges::mismatch(base.steps, other.steps);
  if (a == base.steps.end()) return {};
  std::vector<std::string> what;
  if (a->loss != b->loss) what.emplace_back("loss");
  for (size_t i = 0; i < base.parameters.size(); ++i) {
    if (a->sha256.at(i) != b->sha256.at(i)) what.push_back(base.parameters[i]);
  }
  return {a->step, what};
}

// The groups of all runs, each with what its first rank is like.
std::vector<std::pair<std::string, const DigestGroup*>> groups_of(const RunArm& arm,
                                                                  const RunSet& set) {
  std::vector<std::pair<std::string, const DigestGroup*>> groups;
  for (const SetRun& run : arm.runs) {
    const Models models = device_models(run.run, set.environments);
    for (const DigestGroup& group : run.run.digests) {
      const int64_t first = group.ranks.empty() ? -1 : group.ranks[0];
      groups.emplace_back(likeness_of(group, first, models), &group);
    }
  }
  if (!groups.empty()) return groups;
  throw NotComparable("--same-bits needs digests, which the runs of '" + arm.name +
                      "' lack: take both sides with --digest");
}

std::vector<WrongBits> wrong_in_run(std::span<const DigestGroup> groups, const Models& models) {
  using Part = std::pair<const DigestGroup*, std::vector<int64_t>>;  // its ranks that are alike
  std::map<std::string, std::vector<Part>> alike;
  for (const DigestGroup& group : groups) {
    for (const int64_t rank : group.ranks) {
      const std::string likeness = likeness_of(group, rank, models);
      if (!likeness.empty()) value_beside(&group, alike[likeness]).push_back(rank);
    }
  }
  const auto size = [](const Part& part) { return part.second.size(); };
  std::vector<WrongBits> wrong;
  for (auto& [likeness, parts] : alike) {
    if (parts.size() < 2) continue;
    std::ranges::stable_sort(parts, std::greater<>(), size);
    const bool certain = size(parts[0]) > size(parts[1]);
    for (size_t i = certain ? 1 : 0; i < parts.size(); ++i) {
      const auto [step, what] = first_difference(*parts[i == 0 ? 1 : 0].first, *parts[i].first);
      for (const int64_t rank : parts[i].second) {
        wrong.push_back({.rank = rank, .step = step, .what = what.front(), .certain = certain});
      }
    }
  }
  return wrong;
}

}  // namespace

std::map<int64_t, std::string> device_models(const Run& run,
                                             const std::vector<Environment>& environments) {
  Models models;
  for (const Rank& rank : run.ranks) {
    if (rank.environment < 0) continue;
    const Environment& host = environments.at(rank.environment);
    if (rank.gpu) {
      const Gpu& gpu = host.gpus.at(*rank.gpu);
      if (!gpu.multiprocessors) continue;
      const std::string count = counted(*gpu.multiprocessors, "multiprocessor");
      models[rank.rank] = gpu_chip(gpu.name) + ", " + count;
    } else if (host.cpu_model) {
      const std::string id = cpu_id_of(host).value.value_or("no id");
      models[rank.rank] = joined({*host.cpu_model, id, counted(usable_threads(host), "thread")});
    }
  }
  return models;
}

std::vector<WrongBits> wrong_bits(std::span<const std::vector<DigestGroup>> runs,
                                  const Models& models) {
  std::map<int64_t, std::vector<WrongBits>> found;
  std::map<int64_t, std::vector<const DigestGroup*>> all;  // of each rank, one for each run
  for (const std::vector<DigestGroup>& groups : runs) {
    for (const DigestGroup& group : groups) {
      for (const int64_t rank : group.ranks) all[rank].push_back(&group);
    }
    for (const WrongBits& wrong : wrong_in_run(groups, models)) found[wrong.rank].push_back(wrong);
  }
  return transformed(found, [&](const auto& of_rank) {
    const std::vector<const DigestGroup*>& own = all[of_rank.first];
    const auto is_first = [&](const DigestGroup* group) { return group->steps == own[0]->steps; };
    WrongBits wrong = *std::ranges::max_element(of_rank.second, {}, &WrongBits::certain);
    wrong.runs = std::ssize(of_rank.second);
    const bool always = std::ssize(own) == wrong.runs && std::ranges::all_of(own, is_first);
    if (own.size() > 1) wrong.permanent = always;
    return wrong;
  });
}

SameBits same_bits(const ArmPair& pair, const RunSet& base, const RunSet& next,
                   const std::string& other) {
  const auto of_base = groups_of(*pair.base, base), of_next = groups_of(*pair.next, next);
  SameBits bits{.arm = pair.name};
  for (const auto& [likeness, group] : of_base) {
    for (const auto& [new_likeness, new_group] : of_next) {
      if (likeness.empty() || likeness != new_likeness) continue;
      bits.steps = transformed(group->steps, &StepDigest::step);
      bits.parameters = std::ssize(group->parameters);
      const auto [step, what] = first_difference(*group, *new_group);
      if (step == 0 || (bits.first_step > 0 && bits.first_step <= step)) continue;
      bits.first_step = step;
      bits.differing = what;
    }
  }
  if (!other.empty() || bits.steps.empty()) {
    bits.verdict = BitsVerdict::not_asked;
    const bool known = !of_base[0].first.empty() && !of_next[0].first.empty();
    bits.reason = !other.empty() ? "the sides differ in " + other
                  : known        ? "other kernels were chosen, or devices are of other models"
                                 : "device or kernels are not known";
  } else if (bits.first_step > 0) {
    bits.verdict = BitsVerdict::differ;
    if (pair.base->runs[0].seed != pair.next->runs[0].seed) bits.reason = "they have other seeds";
  }
  return bits;
}

}  // namespace nearmetal
