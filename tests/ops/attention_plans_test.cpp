// Plans that cuDNN offers for attention, for GPUs that are not there. Which engines they are of is
// cuDNN's affair; that there are some, of which each is found again by its name, is ours.
#include <gmock/gmock.h>

#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "base/names.h"
#include "models/cuda/compiler/emission.h"
#include "models/cuda/libraries/attention.h"
#include "tests/ops/child_answers.h"

namespace nearmetal::cuda {
namespace {

std::string properties_of_device(const std::string& device) {
  std::ifstream file(NM_TESTS_FOLDER "/data/cudnn/" + device + ".json");
  if (!file) throw std::runtime_error("cannot read the properties of " + device);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<AttentionProblem> in_both_directions(const std::vector<AttentionExtent>& extents,
                                                 Precision precision) {
  std::vector<AttentionProblem> problems;
  for (const AttentionExtent& extent : extents) {
    for (const AttentionOp op : {AttentionOp::forward, AttentionOp::backward}) {
      problems.push_back({op, extent, precision});
    }
  }
  return problems;
}

// Whether there is a plan, that its name leads to, and that sums in order.
std::string offered(const PlanDevice& device, const AttentionProblem& problem) {
  const std::vector<AttentionPlan> plans =
      offered_plans(device, problem, workspace_limit(problem), 1);
  for (const AttentionPlan& plan : plans) {
    if (named_plan(device, problem, plan.name()).workspace_bytes() != plan.workspace_bytes()) {
      return plan.name() + " is another plan by its name";
    }
    // The gradients of scores, from which those of q are summed in order.
    const AttentionExtent& extent = problem.extent;
    if (problem.op == AttentionOp::backward &&
        plan.workspace_bytes() < extent.rows() * extent.tokens * 2) {
      return plan.name() + " adds to the gradient of q in any order";
    }
  }
  return plans.empty() ? "none" : "plans";
}

struct AttentionPlansCase {
  const char* device;
  Precision precision;
  std::vector<AttentionExtent> extents;
  const char* expected;
};

std::ostream& operator<<(std::ostream& out, const AttentionPlansCase& tested) {
  return out << tested.device << '_' << to_string(tested.precision) << '_' << tested.expected;
}

class AttentionPlans : public ::testing::TestWithParam<AttentionPlansCase> {};

TEST_P(AttentionPlans, AreOffered) {
  const AttentionPlansCase& tested = GetParam();
  const std::vector<AttentionProblem> problems =
      in_both_directions(tested.extents, tested.precision);
  std::optional<PlanDevice> device;  // of the child
  const std::vector<std::string> answers = answers_of_children(problems.size(), [&](size_t i) {
    if (!device) device.emplace(properties_of_device(tested.device));
    return offered(*device, problems[i]);
  });
  for (size_t i = 0; i < problems.size(); ++i) {
    EXPECT_EQ(answers[i], tested.expected) << problems[i].key();
  }
}

// {batch, tokens, heads, features of a head} of BERT, ViT, and of the tests of the whole step.
const std::vector<AttentionExtent> long_and_short{
    {4, 384, 12, 64},   {32, 384, 16, 64}, {32, 512, 12, 64},  {3, 8, 12, 64},
    {128, 197, 12, 64}, {3, 33, 3, 16},    {1300, 384, 12, 64}};
const std::vector<AttentionExtent> one{{32, 384, 12, 64}};

INSTANTIATE_TEST_SUITE_P(
    Of, AttentionPlans,
    ::testing::Values(AttentionPlansCase{"h200", Precision::bf16, long_and_short, "plans"},
                      AttentionPlansCase{"h200", Precision::fp16, one, "plans"},
                      AttentionPlansCase{"h200", Precision::tf32, one, "none"},
                      AttentionPlansCase{"a100", Precision::bf16, one, "plans"},
                      AttentionPlansCase{"t4", Precision::fp16, one, "none"}),
    ::testing::PrintToStringParamName());

// The gradients of scores take 604 MB.
TEST(AttentionPlansOfMuchMemory, StayWithinTheWorkspace) {
  const AttentionProblem problem{AttentionOp::backward, {128, 384, 16, 64}, Precision::bf16};
  const std::vector<std::string> answers = answers_of_children(2, [&](size_t i) {
    const PlanDevice device(properties_of_device("h200"));
    const int64_t limit = i == 0 ? workspace_limit(problem) : 603'000'000;
    return std::string(offered_plans(device, problem, limit, 1).empty() ? "none" : "plans");
  });
  EXPECT_THAT(answers, testing::ElementsAre("plans", "none"));
}

}  // namespace
}  // namespace nearmetal::cuda
