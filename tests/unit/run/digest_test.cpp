#include "bench/run/digest.h"

#include <bit>

#include "reports/compare/same_bits.h"
#include "reports/merge/merge.h"
#include "tests/support/cmd_run_fixture.h"

namespace nearmetal {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

struct Digest : CmdRun {
  Digest() {
    script.parameters = [](int64_t steps) {
      return std::vector<float>(count(), static_cast<float>(steps));
    };
  }
  static size_t count() {
    RunConfig config = small();
    return static_cast<size_t>(trained_graph_of(config).parameter_count());
  }
  static RunConfig small() {
    RunConfig config;
    config.model = "resnet20";
    config.image_size = 32;
    config.classes = 10;
    return config;
  }
  ExitCode run_small(const std::vector<std::string>& more = {"--digest"}) {
    std::vector<std::string> flags = {
        "--device", "cpu", "--model", "resnet20", "--image-size",      "32", "--classes", "10",
        "--steps",  "3",   "--force", "--output", report_path.string()};
    append(flags, more);
    return run(flags, backend);
  }
  DigestGroup digest_of_run() {
    EXPECT_EQ(run_small(), ExitCode::ok);
    EXPECT_EQ(only_run().digests.size(), 1U);
    return only_run().digests.at(0);
  }
};

TEST_F(Digest, HashesEachParameterAfterSomeSteps) {
  script.kernel_choices = {{"conv1", "eng1", 1e-3, 0}};
  const DigestGroup own = digest_of_run();
  EXPECT_THAT(own.ranks, ElementsAre(0));
  EXPECT_EQ(own.kernels, *only_run().ranks.at(0).kernel_choices_sha256);
  EXPECT_EQ(own.parameters.front(), "conv1.weight");
  EXPECT_EQ(own.parameters.back(), "fc.bias");
  EXPECT_THAT(transformed(own.steps, &StepDigest::step), ElementsAre(1, 2, 4, 8));
  // The fake's loss of the n-th step is 7 - (n - 1) / 2; printf("%a") of it.
  EXPECT_THAT(transformed(own.steps, &StepDigest::loss),
              ElementsAre("0x1.cp+2", "0x1.ap+2", "0x1.6p+2", "0x1.cp+1"));
  // By Python: hashlib.sha256(struct.pack("<10f", *[n] * 10)).hexdigest()[:16]
  EXPECT_EQ(own.steps.front().sha256.back(), "00e1a993efd5074e");
  EXPECT_EQ(own.steps.back().sha256.back(), "3d7fc9413546a9a9");
  EXPECT_THAT(out.str(), HasSubstr("digest         the same bits on all ranks"));
}

TEST_F(Digest, StartsAgainAtTheRatesOfTheRun) {
  EXPECT_EQ(run_small({"--digest", "--verify", "--learning-rate", "0.25"}), ExitCode::ok);
  EXPECT_EQ(script.restarts, 3) << "the run, --verify, --digest";
  EXPECT_EQ(script.learning_rate, 0.25) << "not that of --verify";
  EXPECT_EQ(script.fixed_batch_labels, 16);
}

TEST_F(Digest, WithoutItNothingChanges) {
  EXPECT_EQ(run_small({}), ExitCode::ok);
  EXPECT_EQ(script.restarts, 1);
  EXPECT_TRUE(only_run().digests.empty());
  EXPECT_THAT(out.str(), testing::Not(HasSubstr("digest")));
}

TEST_F(Digest, AnInterruptLeavesThePartBefore) {
  script.fixed_batch_loss = [this](int64_t step) {
    if (step == 4) stop = 2;
    return 1.0f;
  };
  EXPECT_EQ(static_cast<int>(run_small()), 130);
  EXPECT_EQ(only_run().failure, "interrupted before the end of --digest");
  EXPECT_TRUE(only_run().digests.empty());
  EXPECT_TRUE(only_run().throughput);
}

// A device that computes wrong: one bit of one parameter is another from the fourth step on.
TEST_F(Digest, AWrongBitIsFoundAndNamed) {
  const DigestGroup right = digest_of_run();
  const Graph graph = trained_graph_of(small());
  const Parameter& flipped =
      *find_in(graph.parameters(), "layer1.0.conv1.weight", &Parameter::name);
  const auto healthy = script.parameters;
  script.parameters = [&](int64_t steps) {
    std::vector<float> values = healthy(steps);
    float& value = values.at(flipped.offset + 7);
    if (steps >= 4) value = std::bit_cast<float>(std::bit_cast<uint32_t>(value) ^ 1U);
    return values;
  };
  std::vector<DigestGroup> all;
  const DigestGroup wrong = digest_of_run();
  for (int64_t rank = 0; rank < 5; ++rank) add_digests({rank == 3 ? wrong : right}, rank, all);
  ASSERT_EQ(all.size(), 2U);
  EXPECT_THAT(all[0].ranks, ElementsAre(0, 1, 2, 4));
  const std::map<int64_t, std::string> models = {
      {0, "H200"}, {1, "H200"}, {2, "H200"}, {3, "H200"}, {4, "H200"}};
  const std::vector<WrongBits> found = wrong_bits(std::array{all, all}, models);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].rank, 3);
  EXPECT_EQ(found[0].step, 4);
  EXPECT_EQ(found[0].what, "layer1.0.conv1.weight");
  EXPECT_TRUE(found[0].certain);
  EXPECT_EQ(found[0].permanent, true);
}

TEST_F(Digest, ALossThatIsNotFiniteIsABitLikeOthers) {
  script.fixed_batch_loss = [](int64_t step) { return step < 4 ? 1.0f : INFINITY; };
  EXPECT_EQ(digest_of_run().steps.back().loss, "inf");
}

}  // namespace
}  // namespace nearmetal
