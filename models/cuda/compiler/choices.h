// Decisions that timing makes and that change which kernels there are.
#pragma once

#include <map>
#include <set>
#include <string>

#include "models/cuda/compiler/flat_layout.h"

namespace nearmetal::cuda {

/// Keys of problems. All convolutions of one key share a choice, but for a key that is of one alone
/// (key_at()), as alternatives are tried.
using Keys = std::set<std::string>;
inline std::string key_at(const std::string& key, const std::string& node) {
  return key + " at " + node;
}

/// Who computes the two products of a convolution's backward pass by second moments: one kernel of
/// ours, or two of cuDNN's.
enum class MomentsProducts { own, cudnn };
/// By key of the forward problem, as in Keys.
using MomentsChoices = std::map<std::string, MomentsProducts>;

struct LoweringChoices {
  StemForm stem = StemForm::pad_to_8;
  Keys fused_sweeps;  // problems with a sweep: statistics, bias, ...
  // Backward_data problems which one kernel of ours computes together with backward_weights
  // and the batch norm's gradient before both.
  Keys fused_backward;
  // Convolutions whose batch norm is computed by second moments where a sum follows it.
  MomentsChoices input_moments;
  // Our own kernels for the first convolution, which read the images of pad_to_4: forward with
  // statistics; backward from the pooled gradient to the weights.
  bool own_stem_forward = false;
  bool own_stem_backward = false;
  // Forward problems of attention which cuDNN computes, and their gradients, without scores in
  // memory; the others are products.
  Keys fused_attention{};
};

}  // namespace nearmetal::cuda
