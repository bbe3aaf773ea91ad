#include <algorithm>
#include <numeric>

#include "bench/run/attribute.h"
#include "tests/support/cmd_run_fixture.h"

namespace nearmetal {
namespace {

using testing::HasSubstr;

TEST_F(CmdRun, AttributeKeepsProbesAndWhyOneIsMissing) {
  ASSERT_EQ(run({"--steps", "3", "--attribute"}), ExitCode::ok) << err.str();
  EXPECT_THAT(err.str(), HasSubstr("timing this machine"));
  const std::optional<RankProbes> probes = only_run().ranks[0].probes;
  ASSERT_TRUE(probes);
  EXPECT_EQ(probes->needs.launch, LaunchMode::call);
  EXPECT_EQ(probes->needs.input_bytes, 0);
  ASSERT_EQ(probes->probes.size(), 3U);
  const ProbeTime& quantum = probes->probes[0];
  EXPECT_EQ(quantum.name, quantum_probe);
  EXPECT_GT(quantum.runs, 10);
  EXPECT_LE(*quantum.median_seconds, *quantum.p99_seconds);
  // The script's backend has no probes of its own.
  EXPECT_EQ(probes->probes[1].name, memory_probe);
  EXPECT_THAT(probes->probes[1].median_seconds.reason, HasSubstr("no such probe"));
  EXPECT_THAT(probes->needs.memory_seconds.reason, HasSubstr("copy/device"));
  EXPECT_EQ(only_run().throughput, Maybe<double>(16 / 0.010));
}

TEST_F(CmdRun, WithoutAttributeThereAreNoProbes) {
  ASSERT_EQ(run({"--steps", "3"}), ExitCode::ok) << err.str();
  EXPECT_FALSE(only_run().ranks[0].probes);
}

TEST(Quanta, FillTheTimeOfEveryThread) {
  const std::vector<std::vector<double>> quanta = time_quanta(2, 0.05);
  ASSERT_EQ(quanta.size(), 2U);
  for (const std::vector<double>& thread : quanta) {
    ASSERT_FALSE(thread.empty());
    EXPECT_GE(std::accumulate(thread.begin(), thread.end(), 0.0), 0.05);
    // 100,000 multiplications that wait for one another: at least 3 clocks each at 6 GHz.
    EXPECT_GT(*std::min_element(thread.begin(), thread.end()), 5e-5);
  }
}

}  // namespace
}  // namespace nearmetal
