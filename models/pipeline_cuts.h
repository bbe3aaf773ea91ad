// Where a network is cut into the stages of a pipeline, and a stage as a graph of its own.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "models/graph.h"

namespace nearmetal {

/// The nodes, by rising index, behind which `graph` may be cut: later nodes read nothing of earlier
/// ones but this node's value, and none of them is computed together with it, as a batch norm, a
/// ReLU or pooling behind it would be.
std::vector<int> cut_points(const Graph& graph);

/// Throws std::invalid_argument where there are too few for so many stages.
void require_cut_points(const Graph& graph, int stages);

/// How a cut behind this node is written: "layer2.3" where it is the last cut point of that module,
/// else by the node's own name.
std::string cut_name(const Graph& graph, int node);
std::string cut_names(const Graph& graph, std::span<const int> cuts);

/// The nodes of "layer2.3,layer3.2": each the last cut point that has this name or lies in the
/// module of this name. Throws std::invalid_argument, which says what there is, for a name without
/// a cut point, for cuts that are not in the order of the network, and unless there is one cut less
/// than there are stages.
std::vector<int> named_cuts(const Graph& graph, std::string_view names, int stages);

/// The cuts for which the slowest stage takes the least time, by dynamic programming; the earliest
/// where several do. `node_seconds`: of each node, forward and backward. Throws
/// std::invalid_argument where the graph has too few cut points.
std::vector<int> balanced_cuts(const Graph& graph, std::span<const double> node_seconds,
                               int stages);

/// The part of the canonical layout of parameters that a stage has.
struct ParameterRange {
  int64_t begin = 0;  // in elements
  int64_t count = 0;
};

/// A stage as a graph of its own: in place of images it receives what the stage before sends, and
/// in place of a loss it sends what the one behind receives.
struct PipelineStage {
  Graph graph;
  ParameterRange parameters;  // their place in the whole network's
  std::string first_node, last_node;
};

/// PipelineStage `stage` of `graph` cut behind the nodes of `cuts`. Throws std::invalid_argument
/// for a stage that is not there.
PipelineStage make_stage(const Graph& graph, std::span<const int> cuts, int stage);

}  // namespace nearmetal
