// Plans that cuDNN offers for the convolutions of a training step and of inference, for GPUs that
// are not there.
//
// tests/data/cudnn describes GPUs as cuDNN does (h200.json was recorded, the others are made from
// it, the data sheet and the limits of their compute capability) and says what was offered for
// them: for each convolution and batch the numbers of engines, each with the number of its
// configurations that the compiler would time. Where cuDNN is another version, the test prints what
// is different and is skipped, and so where a GPU is: beside one cuDNN 9.19 offers other engines,
// also for other GPUs. To accept what is different:
//   NEARMETAL_ACCEPT_PLANS=1 ctest --test-dir build -C slow -R cudnn_plans
// On a GPU, the offer for it is compared with the offer for its description.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>

#include "models/cuda/compiler/planner.h"
#include "models/cuda/compiler/resources.h"
#include "models/cuda/tuning/tuner.h"
#include "models/inference.h"
#include "models/networks/registry.h"
#include "tests/ops/child_answers.h"

namespace nearmetal::cuda {
namespace {

const std::string data_folder = NM_TESTS_FOLDER "/data/cudnn/";
const std::vector<int64_t> all_batches{1, 32, 64, 128, 256, 512, 1024};
const std::vector<const char*> all_networks{"resnet50", "vgg16", "vgg16_bn"};

std::string cudnn_version() {
  const size_t version = cudnnGetVersion();
  return "cuDNN " + std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) +
         "." + std::to_string(version % 100);
}

std::string contents(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error("cannot read " + path);
  return {std::istreambuf_iterator<char>(file), {}};
}

void add_problems_of(const Graph& graph, Precision precision, int64_t batch,
                     std::map<std::string, ConvolutionProblem>& found) {
  ProgramOptions options;
  options.precision = precision;
  options.batch_size = batch;
  options.forward_only = !graph.has_loss();
  for (const StemForm form : stem_forms(stem_convolution(graph), graph.image(), precision)) {
    LoweringChoices choices;
    choices.stem = form;
    const Ops ops = plan_ops(graph, options, choices, {});
    for (const ConvolutionProblem& problem : distinct_problems(ops)) {
      found.emplace(problem.key(), problem);
    }
  }
}

struct PlansCase {
  const char* device;
  Precision precision;
  std::vector<const char*> networks;
  std::vector<int64_t> batches;
  bool whole;  // all that the file of the device holds
};

// The convolutions that the compiler asks cuDNN for, in every form of the first one.
std::vector<ConvolutionProblem> problems_of(const PlansCase& tested) {
  std::map<std::string, ConvolutionProblem> found;
  for (const char* const network : tested.networks) {
    const Graph graph = build_network(network, {224, 1000});
    for (const int64_t batch : tested.batches) {
      add_problems_of(graph, tested.precision, batch, found);
      add_problems_of(inference_graph(graph), tested.precision, batch, found);
    }
  }
  std::vector<ConvolutionProblem> problems;
  for (const auto& [key, problem] : found) problems.push_back(problem);
  return problems;
}

std::vector<ConvolutionPlan> plans_for(const PlanDevice& device,
                                       const ConvolutionProblem& problem) {
  return offered_plans(device, problem, workspace_limit(problem.precision), most_candidates);
}

// "22*5 67*30": engines in rising order, and how many configurations of each.
std::string engines_of(const std::vector<ConvolutionPlan>& plans) {
  std::map<int, int> configurations;
  for (const ConvolutionPlan& plan : plans) {
    ++configurations[std::stoi(plan.name().substr(std::strlen("eng")))];
  }
  std::string text;
  for (const auto& [engine, count] : configurations) {
    text += (text.empty() ? "" : " ") + std::to_string(engine) + "*" + std::to_string(count);
  }
  return text.empty() ? "none" : text;
}

// The offers, by convolution without its batch, and batch.
using Offers = std::map<std::pair<std::string, int64_t>, std::string>;

std::string without_batch(const ConvolutionProblem& problem) {
  const std::string batch = " x" + std::to_string(problem.shape.batch) + "x";
  std::string key = problem.key();
  return key.replace(key.find(batch), batch.size(), " xNx");
}

Offers offers_for(const std::string& properties, const PlansCase& tested) {
  const std::vector<ConvolutionProblem> problems = problems_of(tested);
  std::optional<PlanDevice> device;  // of the child
  const std::vector<std::string> answers = answers_of_children(problems.size(), [&](size_t i) {
    if (!device) device.emplace(properties);
    return engines_of(plans_for(*device, problems[i]));
  });
  Offers offers;
  for (size_t i = 0; i < problems.size(); ++i) {
    offers[{without_batch(problems[i]), problems[i].shape.batch}] = answers[i];
  }
  return offers;
}

// A convolution, and below it a line for batches in succession that are offered the same.
void write_offers(std::ostream& out, const Offers& offers) {
  std::string last_convolution, last_offered;
  for (const auto& [what, offered] : offers) {
    const auto& [convolution, batch] = what;
    const bool is_new = convolution != last_convolution;
    if (is_new) out << '\n' << convolution;
    if (is_new || offered != last_offered) out << "\n  " << offered << " : batch";
    out << ' ' << batch;
    last_convolution = convolution;
    last_offered = offered;
  }
  out << '\n';
}

Offers read_offers(std::istream& in) {
  const std::string separator = " : batch";
  Offers offers;
  std::string convolution;
  for (std::string line; std::getline(in, line);) {
    const size_t end = line.find(separator);
    if (end == std::string::npos) {
      convolution = line;
      continue;
    }
    std::istringstream batches(line.substr(end + separator.size()));
    for (int64_t batch = 0; batches >> batch;)
      offers[{convolution, batch}] = line.substr(2, end - 2);
  }
  return offers;
}

std::string difference(Offers expected, const Offers& actual) {
  for (const auto& [what, offered] : actual) expected.try_emplace(what, "not listed");
  std::string text;
  for (const auto& [what, before] : expected) {
    const auto found = actual.find(what);
    const std::string now = found == actual.end() ? "not asked for" : found->second;
    if (now == before) continue;
    text += what.first + ", batch " + std::to_string(what.second) + "\n  - " + before + "\n  + " +
            now + '\n';
  }
  return text;
}

std::ostream& operator<<(std::ostream& out, const PlansCase& tested) {
  return out << tested.device << '_' << to_string(tested.precision);
}

bool has_gpu() {
  return answers_of_children(1, [](size_t) {
           int count = 0;
           return std::to_string(cudaGetDeviceCount(&count) == cudaSuccess ? count : 0);
         }).front() != "0";
}

class CudnnPlans : public ::testing::TestWithParam<PlansCase> {};

TEST_P(CudnnPlans, AreTheAcceptedOnes) {
  const PlansCase& tested = GetParam();
  const std::string path = data_folder + ::testing::PrintToString(tested) + ".txt";
  const Offers offers = offers_for(contents(data_folder + tested.device + ".json"), tested);
  for (const auto& [what, offered] : offers) {
    const bool has_sweep = what.first.starts_with("conv forward_");  // beside a plain convolution
    EXPECT_TRUE(has_sweep || offered != "none") << what.first;
  }
  if (std::getenv("NEARMETAL_ACCEPT_PLANS") != nullptr) {
    if (!tested.whole) GTEST_SKIP() << "only all batches can be accepted";
    std::ofstream file(path);
    file << cudnn_version();
    write_offers(file, offers);
    ASSERT_TRUE(file.flush()) << path;
    return;
  }
  std::istringstream accepted(contents(path));
  std::string version;
  std::getline(accepted, version);
  Offers expected = read_offers(accepted);
  std::erase_if(expected, [&](const auto& offer) {
    const int64_t batch = offer.first.second;
    return std::find(tested.batches.begin(), tested.batches.end(), batch) == tested.batches.end();
  });
  const std::string differences = difference(expected, offers);
  if (version != cudnn_version()) {
    GTEST_SKIP() << path << " is of " << version << "; " << cudnn_version() << " offers "
                 << (differences.empty() ? "the same" : "\n" + differences);
  }
  if (!differences.empty() && has_gpu()) {
    GTEST_SKIP() << path << " was accepted without a GPU; beside one cuDNN offers\n" << differences;
  }
  EXPECT_TRUE(differences.empty()) << "other than in " << path << '\n' << differences;
}

std::vector<PlansCase> cases(const std::vector<const char*>& devices,
                             const std::vector<int64_t>& batches) {
  std::vector<PlansCase> cases;
  for (const char* device : devices) {
    for (const Precision precision :
         {Precision::fp16, Precision::bf16, Precision::tf32, Precision::fp32}) {
      cases.push_back({device, precision, all_networks, batches, batches == all_batches});
    }
  }
  return cases;
}

// Cases of the other generations, enough to see that each operation is offered something.
std::vector<PlansCase> generations() {
  std::vector<PlansCase> cases;
  for (const char* device : {"t4", "a10", "l4", "b200"}) {
    cases.push_back({device, Precision::fp16, {"resnet18"}, {32}, true});
  }
  cases.push_back({"t4", Precision::fp32, {"resnet18"}, {32}, true});
  return cases;
}

INSTANTIATE_TEST_SUITE_P(OneBatch, CudnnPlans, ::testing::ValuesIn(cases({"h200"}, {256})),
                         ::testing::PrintToStringParamName());
INSTANTIATE_TEST_SUITE_P(Generations, CudnnPlans, ::testing::ValuesIn(generations()),
                         ::testing::PrintToStringParamName());
INSTANTIATE_TEST_SUITE_P(AllBatches, CudnnPlans,
                         ::testing::ValuesIn(cases({"a100", "h200"}, all_batches)),
                         ::testing::PrintToStringParamName());

// cuDNN's description of the GPU of a handle.
std::string properties_of(cudnnHandle_t handle) {
  Descriptor properties(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
  properties.set(CUDNN_ATTR_DEVICEPROP_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle).finalize();
  return properties
      .values<char>(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, 1 << 16)
      .data();
}

// A GPU may be offered more than its description, and whatever that is offered must build for it.
std::string against_description(cudnnHandle_t gpu, const ConvolutionProblem& problem) {
  const std::vector<ConvolutionPlan> real = plans_for(gpu, problem);
  const std::vector<ConvolutionPlan> described = plans_for(PlanDevice(properties_of(gpu)), problem);
  const auto missing_from = [](const auto& others, std::vector<ConvolutionPlan> plans) {
    std::erase_if(plans, [&](const ConvolutionPlan& plan) {
      return std::any_of(others.begin(), others.end(),
                         [&](const auto& other) { return other.name() == plan.name(); });
    });
    return plans;
  };
  const std::vector<ConvolutionPlan> more = missing_from(described, real);
  const std::vector<ConvolutionPlan> less = missing_from(real, described);
  for (const ConvolutionPlan& plan : less) named_plan(gpu, problem, plan.name());
  if (more.empty() && less.empty()) return "same";
  return "more: " + engines_of(more) + ", less: " + engines_of(less);
}

class CudnnPlansOnGpu : public CudnnPlans {};

TEST_P(CudnnPlansOnGpu, AreThoseOfItsDescription) {
  if (!has_gpu()) GTEST_SKIP() << "no GPU";
  const std::vector<ConvolutionProblem> problems = problems_of(GetParam());
  cudnnHandle_t gpu = nullptr;  // of the child
  const std::vector<std::string> answers = answers_of_children(problems.size(), [&](size_t i) {
    if (gpu == nullptr) NM_CALL(cudnnCreate(&gpu));
    return against_description(gpu, problems[i]);
  });
  for (size_t i = 0; i < problems.size(); ++i) {
    if (answers[i] == "same") continue;
    std::cout << problems[i].key() << ": " << answers[i] << '\n';
    EXPECT_TRUE(answers[i].starts_with("more")) << problems[i].key() << ": " << answers[i];
  }
  std::cout << std::count(answers.begin(), answers.end(), "same") << " of " << answers.size()
            << " convolutions are offered the same\n";
}

INSTANTIATE_TEST_SUITE_P(Real, CudnnPlansOnGpu, ::testing::ValuesIn(cases({"gpu"}, all_batches)),
                         ::testing::PrintToStringParamName());

TEST(AnswersOfChildren, SayWhereOneWasTakenDown) {
  const std::vector<std::string> answers = answers_of_children(4, [](size_t i) -> std::string {
    if (i == 1) raise(SIGKILL);
    if (i == 2) throw std::runtime_error("why");
    return std::to_string(i);
  });
  EXPECT_EQ(answers, (std::vector<std::string>{"0", "crashed: Killed", "refused: why", "3"}));
}

}  // namespace
}  // namespace nearmetal::cuda
