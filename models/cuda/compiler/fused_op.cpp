#include "models/cuda/compiler/fused_op.h"

#include "models/cuda/compiler/emission.h"

namespace nearmetal::cuda {
namespace {

// "x=layer1.0.conv1, sums=layer1.0.conv1 sums"; what is scratch alone is left out.
std::string operands_text(const FusedOp& op, const Ops& ops, bool written) {
  std::string text;
  for (const auto& [role, value, access, counted] : op.operands) {
    const bool shown = written ? access != Access::read : access != Access::write;
    if (!shown || role == Role::scratch) continue;
    text +=
        (text.empty() ? "" : ", ") + std::string(to_string(role)) + "=" + ops.values[value].name;
  }
  return text;
}

}  // namespace

std::vector<ConvolutionProblem> distinct_problems(const Ops& ops) {
  std::map<std::string, ConvolutionProblem> found;  // by key
  for (const auto* pass : {&ops.forward, &ops.backward}) {
    for (const FusedOp& op : *pass) {
      if (!op.convolution) continue;
      found.emplace(op.convolution->key(), *op.convolution);
      if (!op.with_sweep) continue;
      const ConvolutionProblem swept = op.convolution->with(*op.with_sweep);
      found.emplace(swept.key(), swept);
    }
  }
  std::vector<ConvolutionProblem> problems;
  for (const auto& [key, problem] : found) problems.push_back(problem);
  return problems;
}

std::string text_of(const FusedOp& op, const Ops& ops) {
  std::string text = std::string(to_string(op.phase)) + " " + name_of(op.kind) + " [" + op.name +
                     "] " + operands_text(op, ops, false) + " -> " + operands_text(op, ops, true);
  if (op.convolution) text += "; " + op.convolution->key();
  if (op.linear) text += "; " + op.linear->key();
  if (op.incoming != Incoming::one) text += std::string("; ") + to_string(op.incoming);
  if (op.relu) text += "; relu";
  if (op.mean >= 0) text += "; mean of pixels";
  if (op.joined_norm >= 0) text += "; masked and summed";
  return text;
}

std::string text_of(const Ops& ops) {
  std::string text;
  for (const auto* pass : {&ops.forward, &ops.backward, &ops.ends}) {
    for (const FusedOp& op : *pass) text += text_of(op, ops) + "\n";
  }
  return text;
}

OpsOfPart difference(const Ops& ops, const Ops& others) {
  const auto apart = [&](const std::vector<FusedOp>& list, const std::vector<FusedOp>& other) {
    std::set<std::string> known;
    for (const FusedOp& op : other) known.insert(text_of(op, others));
    std::vector<FusedOp> found;
    for (const FusedOp& op : list) {
      if (!known.contains(text_of(op, ops))) found.push_back(op);
    }
    return found;
  };
  return {apart(ops.forward, others.forward), apart(ops.backward, others.backward)};
}

}  // namespace nearmetal::cuda
