// The ops of image networks, except those of cuDNN's own layers and of batch norm by second
// moments.
#pragma once

#include "models/cuda/compiler/planner.h"

namespace nearmetal::cuda {

void forward_convolution(Planner& p, int conv);
void forward_norm(Planner& p, const NormPattern& pattern);
/// A batch norm that no pattern takes.
void forward_plain_norm(Planner& p, int norm);
/// A bias, ReLU or pooling that no batch norm takes, and GELU.
void forward_activation(Planner& p, const ActivationPattern& pattern);
void forward_average_pool(Planner& p, int pool);
void forward_add(Planner& p, int add);

void backward_convolution(Planner& p, int conv);
void backward_norm(Planner& p, const NormPattern& pattern);
void backward_plain_norm(Planner& p, int norm);
void backward_activation(Planner& p, const ActivationPattern& pattern);
void backward_average_pool(Planner& p, int pool);
void backward_add(Planner& p, int add);

/// The operands of a batch norm's backward sweeps: the gradient at the end of the pattern.
struct IncomingGradient {
  Incoming form = Incoming::one;
  ValueId dy = no_value, dy_second = no_value;
};
IncomingGradient incoming_gradient(Planner& p, const NormPattern& pattern);
/// Leaves the sums of the pattern's batch norms, and dz where it is given.
void add_norm_sums(Planner& p, const NormPattern& pattern, const IncomingGradient& incoming,
                   ValueId x, ValueId dz);

/// A convolution with its operands; `third`: sums that it leaves, or a residual that it adds.
FusedOp& add_convolution(Planner& p, int conv, ConvolutionOp op, ValueId x, ValueId y,
                         ValueId third = no_value);
ConvolutionProblem convolution_problem(const Planner& p, ConvolutionOp op, int conv);
/// The batch norm whose sums a kernel of ours takes behind this convolution; -1: none.
int summed_norm(const Planner& p, int conv);
/// The average pooling that the sweep at the end of the last block does, too; -1: none.
int mean_behind(const Planner& p, const NormPattern& pattern);
/// Whether our kernel for both products forms the gradient at the convolution's output.
bool fuses_backward(const Planner& p, int conv);
bool fuses_backward(const Planner& p, const NormPattern& pattern);
/// Our kernel for both products of a pointwise convolution. Its operands are all but the partial
/// sums that it keeps in the cache.
FusedOp& add_pointwise_backward(Planner& p, FusedKind kind, const std::string& name, int conv,
                                std::initializer_list<Operand> operands);

}  // namespace nearmetal::cuda
