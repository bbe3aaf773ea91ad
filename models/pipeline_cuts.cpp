#include "models/pipeline_cuts.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>
#include <stdexcept>

#include "base/text.h"

namespace nearmetal {
namespace {

// Whether this reader of a node may lie behind a cut: others are computed together with what they
// read, as is a layer norm that alone reads a sum.
bool may_begin_a_stage(const Graph& graph, const Node& reader) {
  switch (reader.op) {
    case OpKind::conv:
    case OpKind::linear:
    case OpKind::token_linear:
    case OpKind::add:
      return true;
    case OpKind::layer_norm:
      return graph.consumers(reader.inputs[0]).size() > 1;
    default:
      return false;
  }
}

std::optional<int> last_cut_point_in(const Graph& graph, std::string_view module) {
  std::optional<int> last;
  for (const int point : cut_points(graph)) {
    const std::string& name = graph.node(point).name;
    if (name == module || name.starts_with(std::string(module) + ".")) last = point;
  }
  return last;
}

// The seconds before each segment begins, and before the end of all: segments lie between
// neighbouring cut points, before the first and behind the last.
std::vector<double> seconds_before(std::span<const int> points,
                                   std::span<const double> node_seconds) {
  std::vector<double> before{0};
  size_t begin = 0;
  const auto add_until = [&](size_t end) {
    before.push_back(std::accumulate(node_seconds.begin() + static_cast<ptrdiff_t>(begin),
                                     node_seconds.begin() + static_cast<ptrdiff_t>(end),
                                     before.back()));
    begin = end;
  };
  for (const int point : points) add_until(static_cast<size_t>(point) + 1);
  add_until(node_seconds.size());
  return before;
}

// Before which segment each stage ends so that the slowest takes the least time.
std::vector<size_t> balanced_ends(const std::vector<double>& before, int stages) {
  const size_t segments = before.size() - 1;
  struct Best {
    double slowest = std::numeric_limits<double>::infinity();
    size_t last_begins = 0;  // the last of the stages, at this segment
  };
  // The best cuts of the first stages, by their number and that of their segments.
  std::vector best(stages + 1, std::vector<Best>(segments + 1));
  best[0][0].slowest = 0;
  for (int s = 1; s <= stages; ++s) {
    for (size_t end = s; end <= segments; ++end) {
      for (size_t begin = s - 1; begin < end; ++begin) {
        const double slowest = std::max(best[s - 1][begin].slowest, before[end] - before[begin]);
        if (slowest < best[s][end].slowest) best[s][end] = {slowest, begin};
      }
    }
  }
  std::vector<size_t> ends(stages, segments);
  for (int s = stages; s > 1; --s) ends[s - 2] = best[s][ends[s - 1]].last_begins;
  return ends;
}

}  // namespace

std::vector<int> cut_points(const Graph& graph) {
  std::vector<int> points;
  int furthest = 0;  // the last node that reads a value of those before
  const int count = static_cast<int>(graph.nodes().size());
  for (int i = 0; i < count; ++i) {
    const std::vector<int>& readers = graph.consumers(i);
    const bool alone = furthest <= i;
    const bool apart = !readers.empty() && std::ranges::all_of(readers, [&](int reader) {
      return may_begin_a_stage(graph, graph.node(reader));
    });
    if (i > 0 && alone && apart) points.push_back(i);
    for (const int reader : readers) furthest = std::max(furthest, reader);
  }
  return points;
}

void require_cut_points(const Graph& graph, int stages) {
  const size_t points = cut_points(graph).size();
  if (points + 1 >= static_cast<size_t>(stages)) return;
  throw std::invalid_argument(graph.name() + " can be cut into " + std::to_string(points + 1) +
                              " stages at most, not into " + std::to_string(stages));
}

std::string cut_name(const Graph& graph, int node) {
  const std::string& name = graph.node(node).name;
  const std::string module = name.substr(0, name.rfind('.'));
  return last_cut_point_in(graph, module) == node ? module : name;
}

std::string cut_names(const Graph& graph, std::span<const int> cuts) {
  return joined(transformed(cuts, [&](int cut) { return cut_name(graph, cut); }), ",");
}

std::vector<int> named_cuts(const Graph& graph, std::string_view names, int stages) {
  const std::vector<std::string> parts = split(std::string(names), ",");
  if (std::ssize(parts) + 1 != stages) {
    throw std::invalid_argument("--cuts " + std::string(names) + ": " + std::to_string(stages) +
                                " stages need " + counted(stages - 1, "cut") + ", not " +
                                std::to_string(parts.size()));
  }
  std::vector<int> cuts;
  for (const std::string& part : parts) {
    const std::optional<int> found = last_cut_point_in(graph, part);
    if (!found) {
      throw std::invalid_argument("--cuts: " + graph.name() + " cannot be cut behind '" + part +
                                  "', but behind " + cut_names(graph, cut_points(graph)));
    }
    if (!cuts.empty() && *found <= cuts.back()) {
      throw std::invalid_argument("--cuts " + std::string(names) + ": '" + part +
                                  "' is not behind the cut before it");
    }
    cuts.push_back(*found);
  }
  return cuts;
}

std::vector<int> balanced_cuts(const Graph& graph, std::span<const double> node_seconds,
                               int stages) {
  const std::vector<int> points = cut_points(graph);
  require_cut_points(graph, stages);
  const std::vector<size_t> ends = balanced_ends(seconds_before(points, node_seconds), stages);
  std::vector<int> cuts;
  for (int s = 0; s + 1 < stages; ++s) cuts.push_back(points[ends[s] - 1]);
  return cuts;
}

PipelineStage make_stage(const Graph& graph, std::span<const int> cuts, int stage) {
  if (stage < 0 || stage > std::ssize(cuts)) throw std::invalid_argument("there is no such stage");
  const bool is_last = stage == std::ssize(cuts);
  const int first = stage == 0 ? 0 : cuts[stage - 1] + 1;
  const int last = is_last ? static_cast<int>(graph.nodes().size()) - 1 : cuts[stage];
  PipelineStage made{Graph(graph.name()), {}, graph.node(first).name, graph.node(last).name};
  std::vector<int> copies(graph.nodes().size(), -1);
  if (stage > 0) copies[cuts[stage - 1]] = made.graph.receive(graph.node(cuts[stage - 1]).shape);
  for (int i = first; i <= last; ++i) {
    const Node& node = graph.node(i);
    if (!node.parameters.empty() && made.graph.parameters().empty()) {
      made.parameters.begin = graph.parameters()[node.parameters[0]].offset;
    }
    const auto inputs = transformed(node.inputs, [&](int input) { return copies[input]; });
    if (node.op == OpKind::boundary) throw std::invalid_argument("a stage cannot be cut again");
    copies[i] = made.graph.copy(graph, node, inputs);
  }
  if (!is_last) made.graph.send(copies[last]);
  made.parameters.count = made.graph.parameter_count();
  return made;
}

}  // namespace nearmetal
