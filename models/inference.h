// The network as it is evaluated: batch norm by running statistics, which is one scale and one
// shift of each channel, goes into the weights and the bias of the convolution before it.
#pragma once

#include <span>
#include <vector>

#include "models/graph.h"

namespace nearmetal {

/// `trained` without its loss and batch norms; convolutions that had one have a bias. Throws
/// std::invalid_argument for a batch norm that does not follow a convolution which nothing else
/// reads.
Graph inference_graph(const Graph& trained);

/// The parameters of inference_graph(trained), from those of `trained` and the running statistics
/// in the order of Program::running_statistics().
std::vector<float> inference_parameters(const Graph& trained, std::span<const float> parameters,
                                        std::span<const float> running_statistics);

/// Running statistics that fit a network which has not been trained, so that its values neither
/// grow nor vanish from layer to layer: mean 0 (with a bias, the bias), and as variance of a
/// channel the sum of its squared weights times the mean square of what they multiply, as if all
/// values were independent, of mean 0 and, in images, of variance 1.
std::vector<float> expected_statistics(const Graph& trained, std::span<const float> parameters);

}  // namespace nearmetal
