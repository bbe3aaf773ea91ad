// Decisions on a GPU: what would run is timed, and nothing wrong is chosen.
#include "models/cuda/tuning/decide.h"

#include <algorithm>
#include <string>
#include <vector>

#include "models/cuda/libraries/handles.h"
#include "models/networks/registry.h"
#include "tests/ops/hopper_kernels.h"

namespace nearmetal::cuda {
namespace {

template <class T>
class Decide : public HopperKernels<T> {
 protected:
  void SetUp() override {
    HopperKernels<T>::SetUp();
    if (this->IsSkipped()) return;
    stream_ = make_stream();
    cudnnHandle_t cudnn = nullptr;
    NM_CALL(cudnnCreate(&cudnn));
    cudnn_.reset(cudnn);
    NM_CALL(cudnnSetStream(cudnn, stream_.get()));
    options_.batch_size = 16;
    options_.precision = this->precision;
  }

  std::vector<KernelChoice> decided(const WatchTrial& watch = {}) {
    const TuningDevice device{cudnn_.get(), nullptr, stream_.get(), 9, this->multiprocessors_};
    Tuner tuner(device, known_, pinned_);
    decide(graph_, options_, tuner, watch);
    return tuner.used();
  }
  // Null where there is none.
  const KernelChoice* choice_of(const std::vector<KernelChoice>& choices, DecisionKind kind,
                                const std::string& implementation = "") {
    const auto found = std::ranges::find_if(choices, [&](const KernelChoice& choice) {
      return choice.key.starts_with(std::string(to_string(kind)) + ": ") &&
             choice.implementation == implementation;
    });
    return found == choices.end() ? nullptr : &*found;
  }

  const Graph graph_ = build_network("resnet50", {64, 10});
  ProgramOptions options_;
  std::vector<KernelChoice> known_;
  bool pinned_ = false;
  StreamHandle stream_;
  CudnnHandle cudnn_;
};

TYPED_TEST_SUITE(Decide, HopperTypes);

TYPED_TEST(Decide, NothingIsRefusedAndEachChoiceHasItsErrorOrAReason) {
  int other = 0;
  for (const KernelChoice& choice : this->decided()) {
    EXPECT_NE(choice.implementation, refused_implementation) << choice.key;
    if (choice.relative_error) {
      EXPECT_GT(*choice.relative_error, 0) << choice.key;
      EXPECT_LT(*choice.relative_error, 0.05) << choice.key;
    } else {
      EXPECT_NE(choice.relative_error.reason, "") << choice.key;
    }
    const bool is_decision = choice.key.find(": ") != std::string::npos;
    other += is_decision && choice.implementation != apart_implementation ? 1 : 0;
  }
  EXPECT_GT(other, 0);
}

// A kernel that drops the partial sums of one of its blocks: of the rows that one multiprocessor
// takes.
template <class T>
void drop_block_of_sums(Kernel& kernel, int multiprocessors) {
  const Tensor *y = kernel.bound->tensor(Role::y), *sums = kernel.bound->tensor(Role::sums);
  const auto channels = static_cast<int64_t>(kernel.convolution->shape.output_channels);
  kernel.launch = [=, launch = kernel.launch](cudaStream_t stream) {
    launch(stream);
    NM_CALL(cudaStreamSynchronize(stream));
    const int64_t rows = y->bytes / static_cast<int64_t>(sizeof(T)) / channels;
    std::vector<T> values(rows / multiprocessors * channels);
    std::vector<float> total(2 * channels);
    NM_CALL(cudaMemcpy(values.data(), y->data, values.size() * sizeof(T), cudaMemcpyDeviceToHost));
    NM_CALL(cudaMemcpy(total.data(), sums->data, sums->bytes, cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < values.size(); ++i) {
      const float value = as_float(values[i]);
      total[i % channels] -= value;
      total[channels + i % channels] -= value * value;
    }
    NM_CALL(cudaMemcpy(sums->data, total.data(), sums->bytes, cudaMemcpyHostToDevice));
  };
}

TYPED_TEST(Decide, AWrongSumIsRefused) {
  bool planted = false;
  const auto refused =
      this->decided([&](const Decision& decision, const std::string&, Trial& trial) {
        if (decision.kind != DecisionKind::sweep) return;
        for (Kernel& kernel : trial.kernels(Pass::forward)) {
          if (!kernel.convolution || kernel.bound->tensor(Role::sums) == nullptr) continue;
          drop_block_of_sums<TypeParam>(kernel, this->multiprocessors_);
          planted = true;
        }
      });
  if (!planted && this->precision == Precision::bf16) {
    GTEST_SKIP() << "cuDNN has no convolution with sums in bf16";
  }
  ASSERT_TRUE(planted);
  ASSERT_NE(this->choice_of(refused, DecisionKind::sweep, refused_implementation), nullptr);
  EXPECT_EQ(this->choice_of(refused, DecisionKind::sweep, cudnn_implementation), nullptr);
}

// Second moments of one block's rows less: in the sums of z z' - n m m' of 64 inputs.
TYPED_TEST(Decide, AWrongSecondMomentIsRefused) {
  const auto refused = this->decided([&](const Decision& decision, const std::string&,
                                         Trial& trial) {
    if (decision.kind != DecisionKind::moments) return;
    for (Kernel& kernel : trial.kernels(Pass::forward)) {
      if (kernel.implementation != "own sweep with second moments") continue;
      const Tensor* central = *std::ranges::max_element(
          kernel.operands.end() - 3, kernel.operands.end() - 1, {}, &Tensor::bytes);
      kernel.launch = [=, this, launch = kernel.launch](cudaStream_t stream) {
        launch(stream);
        NM_CALL(cudaStreamSynchronize(stream));
        std::vector<float> values(central->bytes / sizeof(float));
        NM_CALL(cudaMemcpy(values.data(), central->data, central->bytes, cudaMemcpyDeviceToHost));
        for (float& value : values) value *= 1 - 1 / static_cast<float>(this->multiprocessors_);
        NM_CALL(cudaMemcpy(central->data, values.data(), central->bytes, cudaMemcpyHostToDevice));
      };
    }
  });
  ASSERT_NE(this->choice_of(refused, DecisionKind::moments, refused_implementation), nullptr);
  for (const char* const other : {own_implementation, cudnn_implementation}) {
    EXPECT_EQ(this->choice_of(refused, DecisionKind::moments, other), nullptr) << other;
  }
}

// The fused backward kernel of 128 output channels leaves a tile of rows out.
TYPED_TEST(Decide, AWrongFusedBackwardKernelIsRefused) {
  bool planted = false;
  const auto choices =
      this->decided([&](const Decision& decision, const std::string&, Trial& trial) {
        if (decision.kind != DecisionKind::fused_backward) return;
        if (decision.problem.shape.output_channels != 128) return;
        for (Kernel& kernel : trial.kernels(Pass::backward)) {
          if (kernel.implementation != "own fused") continue;
          const Tensor* dx = kernel.bound->tensor(Role::dx);
          const int64_t bytes = 64 * decision.problem.shape.input_channels * 2;
          kernel.launch = [=, launch = kernel.launch](cudaStream_t stream) {
            launch(stream);
            char* last = static_cast<char*>(dx->data) + dx->bytes - bytes;
            NM_CALL(cudaMemsetAsync(last, 0, bytes, stream));
          };
          planted = true;
        }
      });
  ASSERT_TRUE(planted);
  int refused = 0;
  for (const KernelChoice& choice : choices) {
    if (choice.key.find(" w128x1x1 ") == std::string::npos) continue;
    if (!choice.key.starts_with(to_string(DecisionKind::fused_backward))) continue;
    EXPECT_NE(choice.implementation, own_implementation) << choice.key;
    refused += choice.implementation == refused_implementation ? 1 : 0;
  }
  EXPECT_GT(refused, 0);
}

// Plans of a release that had no kernel for 128 output channels do without.
TYPED_TEST(Decide, PinnedPlansNeedNotNameALaterKernel) {
  this->known_ = this->decided();
  const size_t erased = std::erase_if(this->known_, [](const KernelChoice& choice) {
    return choice.key.starts_with(to_string(DecisionKind::fused_backward)) &&
           choice.key.find(" w128x1x1 ") != std::string::npos;
  });
  EXPECT_EQ(erased, 2u);
  // Behind second moments such a kernel would be tried once more.
  for (KernelChoice& choice : this->known_) {
    if (!choice.key.starts_with(to_string(DecisionKind::moments))) continue;
    choice.implementation = cudnn_implementation;
  }
  this->pinned_ = true;
  bool tried = false;
  const auto pinned =
      this->decided([&](const Decision&, const std::string&, Trial&) { tried = true; });
  EXPECT_FALSE(tried);
  EXPECT_EQ(pinned, this->known_);
}

TYPED_TEST(Decide, KnownDecisionsAreTakenOver) {
  this->known_ = this->decided();
  bool tried = false;
  const auto again =
      this->decided([&](const Decision&, const std::string&, Trial&) { tried = true; });
  EXPECT_FALSE(tried);
  EXPECT_EQ(again, this->known_);
}

// Whatever throws meanwhile, a capture ends.
TYPED_TEST(Decide, AFailedCaptureLeavesTheStreamAsItWas) {
  cudaStream_t stream = this->stream_.get();
  EXPECT_THROW(captured(stream, [] { throw std::runtime_error("no"); }), CaptureRefused);
  EXPECT_THROW(captured(stream, [] { throw std::logic_error("no"); }), std::logic_error);
  EXPECT_THROW(captured(stream, [&] { NM_CALL(cudaStreamSynchronize(stream)); }), CaptureRefused);
  cudaStreamCaptureStatus status{};
  NM_CALL(cudaStreamIsCapturing(stream, &status));
  EXPECT_EQ(status, cudaStreamCaptureStatusNone);
  const DeviceMemory memory = allocate_device(16);
  EXPECT_NO_THROW(captured(stream, [&] { NM_CALL(cudaMemsetAsync(memory.get(), 0, 16, stream)); }));
}

}  // namespace
}  // namespace nearmetal::cuda
