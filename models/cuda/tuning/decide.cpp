#include "models/cuda/tuning/decide.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <stdexcept>

#include "models/cuda/compiler/lowering.h"
#include "models/cuda/compiler/planner.h"
#include "models/cuda/compiler/resources.h"
#include "models/cuda/kernels/pointwise/backward.h"
#include "models/cuda/kernels/pointwise/second_moments.h"
#include "models/cuda/kernels/stem.h"

namespace nearmetal::cuda {
namespace {

PointwiseShape pointwise_shape(const ConvolutionShape& shape) {
  return {shape.output_elements() / shape.output_channels, static_cast<int>(shape.output_channels),
          static_cast<int>(shape.input_channels)};
}

bool is_pointwise(const ConvolutionShape& shape) { return shape.kernel == 1 && shape.stride == 1; }

// The first convolution of a ResNet in the form that our kernels read.
bool is_stem(const ConvolutionShape& shape) {
  return shape.kernel == 7 && shape.stride == 2 && shape.padding_before == 3 &&
         shape.padding_after == 3 && shape.input_channels == stem_stored_channels &&
         shape.output_channels == stem_channels && shape.input_width % 2 == 0;
}

bool fits_own_products(const ConvolutionProblem& problem, int chip_major) {
  return pointwise_backward_fits(problem.precision, pointwise_shape(problem.shape), chip_major);
}

// Whether plans of reports up to release 0.2, which may be pinned, have no such decision.
bool is_later_than_pinned(const Decision& decision) {
  return decision.kind == DecisionKind::fused_backward &&
         decision.problem.shape.output_channels == 128;
}

// Whether the op is the convolution of such a decision, on this chip.
bool is_open(DecisionKind kind, const FusedOp& op, const Ops& ops, int chip_major) {
  const ConvolutionProblem& problem = *op.convolution;
  const ConvolutionShape& shape = problem.shape;
  const bool hopper_16_bit = chip_major == 9 && element_bytes(problem.precision) == 2;
  const bool has_statistics = op.with_sweep == ConvolutionOp::forward_statistics;
  switch (kind) {
    case DecisionKind::sweep:
      return op.with_sweep.has_value();
    case DecisionKind::stem_forward:
      return has_statistics && hopper_16_bit && is_stem(shape);
    case DecisionKind::stem_backward:
      return problem.op == ConvolutionOp::backward_weights && hopper_16_bit && is_stem(shape) &&
             std::ranges::any_of(ops.backward, [&](const FusedOp& other) {
               return other.kind == FusedKind::pool_gradient_apply && other.norm.conv == op.node;
             });
    case DecisionKind::fused_backward:
      return problem.op == ConvolutionOp::backward_data && is_pointwise(shape) &&
             fits_own_products(problem, chip_major);
    case DecisionKind::moments: {
      const PointwiseShape of = pointwise_shape(shape);
      return has_statistics && is_pointwise(shape) &&
             moments_fit(problem.precision, {of.rows, of.input_channels, of.output_channels},
                         chip_major);
    }
  }
  throw std::logic_error("unnamed DecisionKind");
}

std::vector<std::string> alternatives_of(DecisionKind kind, const ConvolutionProblem& problem,
                                         int chip_major) {
  if (kind == DecisionKind::sweep) return {cudnn_implementation};
  if (kind != DecisionKind::moments) return {own_implementation};
  if (!fits_own_products(problem, chip_major)) return {cudnn_implementation};
  return {own_implementation, cudnn_implementation};
}

void set(Keys& keys, const std::string& key, bool chosen) {
  chosen ? void(keys.insert(key)) : void(keys.erase(key));
}

}  // namespace

std::vector<Decision> decisions_of(DecisionKind kind, const Ops& ops,
                                   int compute_capability_major) {
  std::map<std::string, Decision> found;
  for (const auto* pass : {&ops.forward, &ops.backward}) {
    for (const FusedOp& op : *pass) {
      if (!op.convolution || !is_open(kind, op, ops, compute_capability_major)) continue;
      Decision decision{kind, *op.convolution,
                        alternatives_of(kind, *op.convolution, compute_capability_major)};
      if (kind == DecisionKind::sweep) decision.problem = op.convolution->with(*op.with_sweep);
      found.try_emplace(decision.key(), decision).first->second.convs.push_back(op.node);
    }
  }
  std::vector<Decision> decisions;
  for (const auto& [key, decision] : found) decisions.push_back(decision);
  return decisions;
}

LoweringChoices with_choice(LoweringChoices choices, const Graph& graph, const Decision& decision,
                            const std::string& implementation, int conv) {
  const std::string problem = decision.problem.key();
  const std::string key = conv < 0 ? problem : key_at(problem, graph.node(conv).name);
  const bool apart = implementation == apart_implementation;
  switch (decision.kind) {
    case DecisionKind::sweep:
      set(choices.fused_sweeps, key, !apart);
      break;
    case DecisionKind::stem_forward:
      choices.own_stem_forward = !apart;
      break;
    case DecisionKind::stem_backward:
      choices.own_stem_backward = !apart;
      break;
    case DecisionKind::fused_backward:
      set(choices.fused_backward, key, !apart);
      break;
    case DecisionKind::moments:
      choices.input_moments.erase(key);
      if (apart) break;
      choices.input_moments[key] =
          implementation == own_implementation ? MomentsProducts::own : MomentsProducts::cudnn;
  }
  return choices;
}

namespace {

class Decider {
 public:
  Decider(const Graph& graph, const ProgramOptions& options, Tuner& tuner, const WatchTrial& watch)
      : graph_(graph),
        options_(options),
        tuner_(tuner),
        watch_(watch),
        workspace_(tuner.device().handle == nullptr
                       ? nullptr
                       : allocate_device(workspace_limit(options.precision))),
        source_{graph, options, tuner.device(), workspace_.get(),
                [this](Kernel& kernel) { bind_plan(kernel, *tuner_.plan(*kernel.convolution)); }} {}

  Ops ops(const LoweringChoices& choices) const {
    const TuningDevice& device = tuner_.device();
    return plan_ops(graph_, options_, choices, {device.multiprocessors, device.handle});
  }

  // By one form of the first convolution.
  LoweringChoices decide_in_form(LoweringChoices choices) {
    const Ops undecided = ops(choices);
    tuner_.choose(distinct_problems(undecided));
    const auto open = [&](DecisionKind kind) {
      return decisions_of(kind, undecided, tuner_.device().compute_capability_major);
    };
    for (const DecisionKind kind :
         {DecisionKind::sweep, DecisionKind::stem_forward, DecisionKind::stem_backward,
          DecisionKind::fused_backward, DecisionKind::moments}) {
      if (options_.kernels == Kernels::cudnn && kind != DecisionKind::sweep) continue;
      for (const Decision& decision : open(kind)) choices = decided(decision, choices);
    }
    // Between blocks that end by second moments one of our kernels saves a sweep more.
    if (choices.input_moments.empty() || tuner_.is_pinned()) return choices;
    for (const Decision& decision : open(DecisionKind::fused_backward)) {
      const std::string key = key_of(decision);
      if (tuner_.is_given(key) || !decided_with_moments_.insert(key).second) continue;
      const auto place = find_place(decision, choices, own_implementation);
      if (place && joins(*place)) choices = timed(decision, choices);
    }
    return choices;
  }

  // The choices of the form that is the fastest in all that differs between them.
  LoweringChoices best_form(const std::vector<LoweringChoices>& forms) {
    if (forms.size() == 1) return forms.front();
    const std::string key = "form of " + stem_convolution(graph_).name;
    std::vector<std::string> names;
    for (const LoweringChoices& form : forms) names.push_back(to_string(form.stem));
    if (const KernelChoice* known = tuner_.decision(key, names)) {
      return forms[std::ranges::find(names, known->implementation) - names.begin()];
    }
    const LoweringChoices* best = &forms.front();
    double best_seconds = 0;
    for (const LoweringChoices& form : std::span(forms).subspan(1)) {
      const Ops before = ops(*best), now = ops(form);
      Trial reference(source_, before, difference(before, now), best->stem, memory_[0]);
      Trial other(source_, now, difference(now, before), form.stem, memory_[1]);
      reference.prepare();
      other.prepare();
      best_seconds = reference.seconds();
      const double seconds = other.seconds();
      if (seconds >= best_seconds) continue;
      best = &form;
      best_seconds = seconds;
    }
    tuner_.keep({key, to_string(best->stem), best_seconds, Unknown{"images of two forms differ"}});
    return *best;
  }

 private:
  // A part of the passes under a choice and without it.
  struct Place {
    Ops reference_ops, ops;
    OpsOfPart reference, part;
  };

  static bool joins(const Place& place) {
    return std::ranges::any_of(place.part.backward,
                               [](const FusedOp& op) { return op.joined_norm >= 0; });
  }
  std::optional<Place> place_of(const Decision& decision, const LoweringChoices& reference,
                                const std::string& implementation, int conv) const;
  std::optional<Place> find_place(const Decision& decision, const LoweringChoices& choices,
                                  const std::string& implementation) const;
  // The reference of cuDNN's kernels alone is another.
  std::string key_of(const Decision& decision) const {
    return decision.key() + (options_.kernels == Kernels::cudnn ? ", cudnn alone" : "");
  }
  LoweringChoices decided(const Decision& decision, const LoweringChoices& choices);
  LoweringChoices timed(const Decision& decision, const LoweringChoices& choices);

  const Graph& graph_;
  const ProgramOptions& options_;
  Tuner& tuner_;
  const WatchTrial& watch_;
  DeviceMemory workspace_;
  TrialMemory memory_[2];  // of the reference, and of the other
  TrialSource source_;
  std::set<std::string> decided_with_moments_;  // by key
};

std::optional<Decider::Place> Decider::place_of(const Decision& decision,
                                                const LoweringChoices& reference,
                                                const std::string& implementation, int conv) const {
  Place place{
      ops(reference), ops(with_choice(reference, graph_, decision, implementation, conv)), {}, {}};
  place.reference = difference(place.reference_ops, place.ops);
  place.part = difference(place.ops, place.reference_ops);
  if (place.part.empty()) return std::nullopt;
  return place;
}

// The first convolution whose ops the choice changes, rather one where it saves a sweep more; else
// all of them together, as some kernels need two at once.
std::optional<Decider::Place> Decider::find_place(const Decision& decision,
                                                  const LoweringChoices& choices,
                                                  const std::string& implementation) const {
  const LoweringChoices reference = with_choice(choices, graph_, decision, apart_implementation);
  std::optional<Place> first;
  for (const int conv : decision.convs) {
    std::optional<Place> place = place_of(decision, reference, implementation, conv);
    if (place && (decision.kind != DecisionKind::fused_backward || joins(*place))) return place;
    if (place && !first) first = std::move(place);
  }
  return first ? std::move(first) : place_of(decision, reference, implementation, -1);
}

LoweringChoices Decider::decided(const Decision& decision, const LoweringChoices& choices) {
  const std::string key = key_of(decision);
  std::vector<std::string> names = decision.alternatives;
  names.push_back(apart_implementation);
  // Whatever is given is taken over, also where it makes no difference.
  if (!tuner_.is_given(key) && !tuner_.is_made(key)) {
    // cuDNN may have no plan that does the sweep, too.
    if (decision.kind == DecisionKind::sweep && !tuner_.plan(decision.problem)) return choices;
    if (!tuner_.is_pinned()) return timed(decision, choices);
    if (is_later_than_pinned(decision)) return choices;
    if (!find_place(decision, choices, names.front())) return choices;
  }
  const KernelChoice* known = tuner_.decision(key, names);
  if (known == nullptr) return timed(decision, choices);
  return with_choice(choices, graph_, decision, known->implementation);
}

LoweringChoices Decider::timed(const Decision& decision, const LoweringChoices& choices) {
  KernelChoice best{key_of(decision), apart_implementation, 0,
                    Unknown{"it is the reference of the others"}};
  double gain = 0;
  for (const std::string& implementation : decision.alternatives) {
    const std::optional<Place> place = find_place(decision, choices, implementation);
    if (!place) return choices;  // nor for another implementation
    Trial reference(source_, place->reference_ops, place->reference, choices.stem, memory_[0]);
    Trial other(source_, place->ops, place->part, choices.stem, memory_[1]);
    if (watch_) watch_(decision, implementation, other);
    Trial::Error worst;
    reference.prepare();
    other.prepare();
    for (const Pass pass : {Pass::forward, Pass::backward}) {
      reference.run(pass);
      other.run(pass);
      worst = other.worse(worst, pass, reference);
      other.take(pass, reference);
    }
    if (worst.result.empty()) throw std::logic_error("nothing compares " + key_of(decision));
    const double reference_seconds = reference.seconds();
    if (best.seconds == 0) best.seconds = reference_seconds;
    if (!(worst.share() <= 1)) {
      // Kept beside the decision, by the name of the result that is wrong.
      tuner_.keep(refused(best.key + " " + implementation + ", " + worst.result, worst.relative));
      continue;
    }
    const double seconds = other.seconds();
    if (reference_seconds - seconds <= gain) continue;
    gain = reference_seconds - seconds;
    best = {key_of(decision), implementation, seconds, worst.relative};
  }
  tuner_.keep(best);
  return with_choice(choices, graph_, decision, best.implementation);
}

}  // namespace

LoweringChoices decide(const Graph& graph, const ProgramOptions& options, Tuner& tuner,
                       const WatchTrial& watch) {
  LoweringChoices choices;
  const std::vector<AttentionProblem> attention = distinct_attention(graph, options);
  tuner.choose(attention);
  for (const AttentionProblem& problem : attention) {
    const bool forward = problem.op == AttentionOp::forward;
    if (forward && tuner.plan(problem) != nullptr) choices.fused_attention.insert(problem.key());
  }
  Decider decider(graph, options, tuner, watch);
  std::vector<LoweringChoices> forms;
  for (const StemForm form : forms_of(graph, options.precision)) {
    choices.stem = form;
    forms.push_back(decider.decide_in_form(choices));
  }
  return decider.best_form(forms);
}

}  // namespace nearmetal::cuda
