#include "models/pipeline_cuts.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <stdexcept>

#include "models/networks/registry.h"

namespace nearmetal {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using ::testing::ThrowsMessage;

Graph network(const std::string& name) { return build_network(name, {64, 10}); }

std::string all_cuts(const std::string& name) {
  const Graph graph = network(name);
  return cut_names(graph, cut_points(graph));
}

TEST(CutPoints, OfResidualNetworksAreBlocks) {
  EXPECT_EQ(all_cuts("resnet18"),
            "maxpool,layer1.0,layer1.1,layer2.0,layer2.1,layer3.0,layer3.1,layer4.0,avgpool");
}

TEST(CutPoints, DoNotPartWhatIsComputedTogether) {
  EXPECT_THAT(all_cuts("vgg16_bn"), HasSubstr("features.2,features.6,"))
      << "behind ReLU or pooling, not behind a convolution or its batch norm";
}

TEST(CutPoints, OfVisionTransformersAreHalvesOfLayers) {
  EXPECT_THAT(all_cuts("vit_b_16"),
              AllOf(StartsWith("encoder.pos_embedding,encoder.layers.encoder_layer_0.add_1,"
                               "encoder.layers.encoder_layer_0,"
                               "encoder.layers.encoder_layer_1.add_1,"),
                    EndsWith("encoder.layers.encoder_layer_10,encoder.layers.encoder_layer_11,"
                             "select_token")));
}

TEST(Cuts, AreFoundByModuleAndByNode) {
  const Graph graph = network("resnet50");
  const std::vector<int> cuts = named_cuts(graph, "layer2.3,layer3.2", 3);
  EXPECT_EQ(graph.node(cuts[0]).name, "layer2.3.relu");
  EXPECT_EQ(graph.node(cuts[1]).name, "layer3.2.relu");
  EXPECT_EQ(named_cuts(graph, "layer2", 2), named_cuts(graph, "layer2.3.relu", 2));
  EXPECT_EQ(cut_names(graph, cuts), "layer2.3,layer3.2");
  for (const int point : cut_points(graph)) {
    EXPECT_THAT(named_cuts(graph, cut_name(graph, point), 2), testing::ElementsAre(point));
  }
}

TEST(Cuts, ThatCannotBeAreRefused) {
  const Graph graph = network("resnet18");
  const auto refused = [&](const char* names, int stages, const char* why) {
    EXPECT_THAT([&] { named_cuts(graph, names, stages); },
                ThrowsMessage<std::invalid_argument>(HasSubstr(why)));
  };
  refused("layer9", 2, "behind maxpool,layer1.0");
  refused("layer1.0.conv1", 2, "cannot be cut behind 'layer1.0.conv1'");
  refused("layer2", 3, "3 stages need 2 cuts, not 1");
  refused("layer2,layer1", 3, "'layer1' is not behind the cut before it");
  refused("layer2,layer2", 3, "not behind");
  refused("layer2,", 3, "cannot be cut behind ''");
  EXPECT_THAT(
      [&] { balanced_cuts(graph, std::vector<double>(graph.nodes().size()), 11); },
      ThrowsMessage<std::invalid_argument>(HasSubstr("into 10 stages at most, not into 11")));
}

double slowest_stage(const std::vector<int>& cuts, std::span<const double> seconds) {
  double slowest = 0;
  size_t begin = 0;
  for (size_t s = 0; s <= cuts.size(); ++s) {
    const size_t end = s < cuts.size() ? static_cast<size_t>(cuts[s]) + 1 : seconds.size();
    const auto stage = seconds.subspan(begin, end - begin);
    slowest = std::max(slowest, std::accumulate(stage.begin(), stage.end(), 0.0));
    begin = end;
  }
  return slowest;
}

// All ways to take `count` of the points, in order.
void for_each_choice(std::span<const int> points, size_t count, std::vector<int>& chosen,
                     const std::function<void(const std::vector<int>&)>& visit) {
  if (count == 0) return visit(chosen);
  for (size_t i = 0; i + count <= points.size(); ++i) {
    chosen.push_back(points[i]);
    for_each_choice(points.subspan(i + 1), count - 1, chosen, visit);
    chosen.pop_back();
  }
}

TEST(Balance, IsTheBestOfAllCuts) {
  const Graph graph = network("resnet18");
  const std::vector<int> points = cut_points(graph);
  std::mt19937 random(1);
  for (int stages = 1; stages <= 5; ++stages) {
    std::vector<double> seconds(graph.nodes().size());
    std::ranges::generate(seconds, [&] { return static_cast<double>(random() % 1000); });
    double best = std::accumulate(seconds.begin(), seconds.end(), 0.0);
    std::vector<int> chosen;
    for_each_choice(points, stages - 1, chosen, [&](const std::vector<int>& cuts) {
      best = std::min(best, slowest_stage(cuts, seconds));
    });
    EXPECT_EQ(slowest_stage(balanced_cuts(graph, seconds, stages), seconds), best) << stages;
  }
}

TEST(Stages, TogetherAreTheNetwork) {
  for (const char* name : {"resnet18", "resnet50", "vgg16"}) {
    const Graph graph = network(name);
    const std::vector<int> cuts =
        balanced_cuts(graph, std::vector<double>(graph.nodes().size(), 1), 3);
    int64_t end = 0;
    double flops = 0;
    std::vector<std::string> parameters;
    for (int s = 0; s < 3; ++s) {
      const PipelineStage stage = make_stage(graph, cuts, s);
      EXPECT_EQ(stage.parameters.begin, end) << name;
      end += stage.parameters.count;
      flops += stage.graph.forward_flops_per_sample();
      for (const Parameter& parameter : stage.graph.parameters()) {
        parameters.push_back(parameter.name);
      }
      EXPECT_EQ(stage.graph.receives(), s > 0);
      EXPECT_EQ(stage.graph.sends(), s < 2);
      EXPECT_EQ(stage.graph.has_loss(), s == 2);
      EXPECT_TRUE(stage.graph.is_trainable());
    }
    EXPECT_EQ(end, graph.parameter_count());
    EXPECT_EQ(flops, graph.forward_flops_per_sample());
    for (size_t i = 0; i < parameters.size(); ++i) {
      EXPECT_EQ(parameters[i], graph.parameters()[i].name);
    }
  }
}

TEST(Stages, MeetAtTheSameShape) {
  const Graph graph = network("resnet50");
  const std::vector<int> cuts = named_cuts(graph, "layer2,avgpool", 3);
  EXPECT_EQ(make_stage(graph, cuts, 0).graph.nodes().back().shape, (Shape{512, 8, 8}));
  EXPECT_EQ(make_stage(graph, cuts, 1).graph.image(), (Shape{512, 8, 8}));
  const PipelineStage last = make_stage(graph, cuts, 2);
  EXPECT_EQ(last.graph.image(), (Shape{2048, 1, 1}));
  EXPECT_EQ(last.first_node, "fc");
  EXPECT_THROW(make_stage(graph, cuts, 3), std::invalid_argument);
}

}  // namespace
}  // namespace nearmetal
