// The ops of a pass as readable lists, planned without a GPU.
#include <gmock/gmock.h>

#include <set>
#include <sstream>

#include "models/cuda/compiler/emission.h"
#include "models/networks/registry.h"
#include "tests/unit/models/cuda_lowered.h"

namespace nearmetal::cuda {
namespace {

using ::testing::ElementsAre;
using ::testing::IsSupersetOf;

// The lines of the list that name the nodes, without the keys of problems.
std::vector<std::string> lines_with(const Ops& ops, const std::string& nodes) {
  std::vector<std::string> found;
  std::istringstream text(text_of(ops));
  for (std::string line; std::getline(text, line);) {
    if (line.find('[' + nodes) == line.npos) continue;
    found.push_back(line.substr(0, line.find("; conv ")));
  }
  return found;
}

class CudaOps : public ::testing::Test {
 protected:
  Ops ops(const LoweringChoices& choices) const { return plan_ops(graph_, options_, choices, {}); }

  const Graph graph_ = build_network("resnet50", {224, 1000});
  const ProgramOptions options_ = options_of(Precision::fp16);
};

TEST_F(CudaOps, EachKindHasOneEmitter) {
  const size_t kinds = static_cast<size_t>(FusedKind::cudnn_relu_gradient) + 1;
  std::set<std::string> names;
  for (size_t kind = 0; kind < kinds; ++kind) names.insert(name_of(static_cast<FusedKind>(kind)));
  EXPECT_EQ(names.size(), kinds);
  EXPECT_EQ(
      emitters::of_images().size() + emitters::of_tokens().size() + emitters::of_cudnn().size(),
      kinds)
      << "one is left over, or never found";
}

// Who sums, who masks, who normalises.
TEST_F(CudaOps, OfABlockByCudnnAndOurSweeps) {
  EXPECT_THAT(
      lines_with(ops({}), "layer1.1.bn3"),
      ElementsAre("forward batch_statistics [layer1.1.bn3] x=layer1.1.conv3 -> ",
                  "forward normalise [layer1.1.bn3 + layer1.1.relu] x=layer1.1.conv3, "
                  "residual=layer1.0.relu -> y=layer1.1.relu, mask=layer1.1.relu mask; relu",
                  "backward norm_gradient_sums [layer1.1.bn3 + layer1.1.relu] "
                  "dy=gradient of layer1.2.relu before its ReLU, "
                  "dy_second=gradient of layer1.1.relu by layer1.2.conv1, mask=layer1.1.relu mask, "
                  "x=layer1.1.conv3 -> dz=gradient of layer1.1.relu before its ReLU; "
                  "two gradients; relu",
                  "backward norm_gradient_apply [layer1.1.bn3 + layer1.1.relu] "
                  "dz=gradient of layer1.1.relu before its ReLU, x=layer1.1.conv3 -> "
                  "dx=gradient of layer1.1.conv3 by layer1.1.bn3; two gradients; relu"));
}

TEST_F(CudaOps, OfABlockThatEndsBySecondMoments) {
  const Ops fused = ops(all_fused(graph_, options_));
  EXPECT_THAT(lines_with(fused, "layer1.1.bn2"),
              ElementsAre("forward second_moments [layer1.1.bn2 + layer1.1.relu2] "
                          "y=layer1.1.conv2, sums=layer1.1.conv2 sums -> x=layer1.1.relu2, "
                          "mean=layer1.1.conv3 input mean, central=layer1.1.conv3 input moments",
                          "backward moments_sums [layer1.1.bn2 + layer1.1.relu2] "
                          "x=layer1.1.conv2, dz=gradient of layer1.1.relu2 before its ReLU, "
                          "matrix=layer1.1.conv3 gradient matrix, "
                          "vector=layer1.1.conv3 gradient vector, "
                          "largest=layer1.1.conv3 largest of the matrix -> "
                          "dz=gradient of layer1.1.relu2 before its ReLU",
                          "backward norm_gradient_apply [layer1.1.bn2 + layer1.1.relu2] "
                          "dz=gradient of layer1.1.relu2 before its ReLU, x=layer1.1.conv2 -> "
                          "dx=gradient of layer1.1.conv2 by layer1.1.bn2; relu"));
  // The kernel of the next block adds the shortcut's gradient, masks it and takes the sums.
  EXPECT_THAT(lines_with(fused, "layer1.2.bn1 + layer1.2.conv1 + layer1.1.relu"),
              ElementsAre("backward pointwise_backward "
                          "[layer1.2.bn1 + layer1.2.conv1 + layer1.1.relu] "
                          "dz=gradient of layer1.2.relu1 by layer1.2.conv2, y=layer1.2.conv1, "
                          "x=layer1.1.relu, dx_second=gradient of layer1.2.relu before its ReLU "
                          "-> dx=gradient of layer1.1.relu before its ReLU; relu; "
                          "masked and summed"));
}

TEST_F(CudaOps, AnAlternativeIsAnotherListForTheSamePart) {
  const ConvolutionProblem problem = last_of_block(64, 56).with(ConvolutionOp::backward_data);
  const auto conv = [&](const std::string& name) {
    const auto& nodes = graph_.nodes();
    return static_cast<int>(std::ranges::find(nodes, name, &Node::name) - nodes.begin());
  };
  const Decision decision{DecisionKind::fused_backward, problem, {own_implementation}};
  const LoweringChoices fused =
      with_choice({}, graph_, decision, own_implementation, conv("layer1.1.conv3"));
  const OpsOfPart apart = difference(ops({}), ops(fused)), own = difference(ops(fused), ops({}));
  const auto kinds = [](const std::vector<FusedOp>& ops) {
    std::vector<std::string> names;
    for (const FusedOp& op : ops) names.emplace_back(name_of(op.kind));
    return names;
  };
  EXPECT_TRUE(apart.forward.empty());
  EXPECT_TRUE(own.forward.empty());
  EXPECT_THAT(kinds(apart.backward),
              ElementsAre("norm_gradient_apply", "convolution", "convolution"));
  EXPECT_THAT(kinds(own.backward), ElementsAre("pointwise_backward"));
}

// What the ops of a part leave that others read, and the gradients of parameters.
struct Left {
  std::set<std::string> all, for_others, gradients;
};
Left left_by(const OpsOfPart& part, const Ops& ops) {
  std::set<std::string> own;
  Left left;
  for (const auto* pass : {&part.forward, &part.backward}) {
    for (const FusedOp& op : *pass) {
      own.insert(text_of(op, ops));
      for (const int parameter : op.gradients) left.gradients.insert(std::to_string(parameter));
      for (const Operand& operand : op.operands) {
        const Value& value = ops.values[operand.value];
        const bool compared = value.content != Content::other;
        if (operand.access != Access::read && compared) left.all.insert(value.name);
      }
    }
  }
  std::set<std::string> written;
  for (const auto* pass : {&part.forward, &part.backward}) {
    for (const FusedOp& op : *pass) {
      for (const Operand& operand : op.operands) {
        if (operand.access != Access::read) written.insert(ops.values[operand.value].name);
      }
    }
  }
  for (const auto* pass : {&ops.forward, &ops.backward}) {
    for (const FusedOp& op : *pass) {
      if (own.contains(text_of(op, ops))) continue;
      for (const Operand& operand : op.operands) {
        const std::string& name = ops.values[operand.value].name;
        if (operand.access != Access::write && written.contains(name)) left.for_others.insert(name);
      }
    }
  }
  return left;
}

// Nothing that a trial leaves to the rest of the step is taken on trust.
TEST_F(CudaOps, WhatAnAlternativeLeavesForOthersIsCompared) {
  int tried = 0;
  for (const char* const network : {"resnet18", "resnet50", "vgg16", "vgg16_bn"}) {
    const Graph graph = build_network(network, {224, 1000});
    LoweringChoices base;
    base.stem = StemForm::pad_to_4;
    const Ops plain = plan_ops(graph, options_, base, {});
    for (int kind = 0; kind < std::ssize(names_of(DecisionKind{})); ++kind) {
      for (const Decision& decision :
           decisions_of(static_cast<DecisionKind>(kind), plain, hopper)) {
        for (const std::string& implementation : decision.alternatives) {
          for (const int conv : decision.convs) {
            const Ops other = plan_ops(
                graph, options_, with_choice(base, graph, decision, implementation, conv), {});
            const OpsOfPart part = difference(other, plain), reference = difference(plain, other);
            if (part.empty()) continue;
            SCOPED_TRACE(decision.key() + " " + implementation + " at " + graph.node(conv).name);
            ++tried;
            const Left left = left_by(part, other), expected = left_by(reference, plain);
            EXPECT_THAT(expected.all, IsSupersetOf(left.for_others));
            EXPECT_THAT(left.all, IsSupersetOf(left.for_others));
            EXPECT_EQ(left.gradients, expected.gradients);
          }
        }
      }
    }
  }
  EXPECT_GT(tried, 100);
}

TEST_F(CudaOps, AreToldByTheirKernels) {
  const LoweredStep step = lowered(graph_, options_, {});
  EXPECT_EQ(kernel_of(step, Phase::forward, "layer1.1.bn3", "own statistics sweep").op,
            "forward batch_statistics [layer1.1.bn3] x=layer1.1.conv3 -> ");
}

TEST_F(CudaOps, ReadNothingThatIsNotLeft) {
  for (const std::string& name : network_names()) {
    const Graph graph = build_network(name);
    ProgramOptions options = options_;
    if (graph.reads_tokens()) options.precision = Precision::bf16;
    const LoweringChoices fused = all_fused(graph, options);
    const Ops ops = plan_ops(graph, options, fused, {});
    std::vector<bool> left(ops.values.size(), false);
    if (ops.input != no_value) left[ops.input] = true;
    for (const auto* pass : {&ops.forward, &ops.backward, &ops.ends}) {
      for (const FusedOp& op : *pass) {
        for (const Operand& operand : op.operands) {
          EXPECT_TRUE(left[operand.value] || operand.access == Access::write)
              << name << ": " << text_of(op, ops);
          left[operand.value] = true;
        }
      }
    }
  }
}

}  // namespace
}  // namespace nearmetal::cuda
