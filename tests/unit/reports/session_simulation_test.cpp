// How often verdicts are wrong where runs are not independent: sessions, drift, slow losses.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <fstream>
#include <random>
#include <string>

#include "reports/compare/gate.h"
#include "tests/support/made_up_runs.h"

namespace nearmetal {
namespace {

// How runs are taken, where they are not independent. Shares and changes are of a run's level.
struct PlanOfRuns {
  int base_sessions = 1;
  int base_runs = 8;           // a session
  int new_runs = 8;            // in one session; with pairs as many as those of the base
  std::string order;           // blocks: the sides one after the other; ABAB, ABBA: by turns
  double between = 0;          // standard deviation of sessions
  double drift = 0;            // of each run from the one before
  double autocorrelation = 0;  // of neighbouring runs
  double spread = 0;           // standard deviation of runs
  double drop = 0;
};

class PlannedRuns {
 public:
  explicit PlannedRuns(const PlanOfRuns& plan) : plan_(plan) {}

  Comparison next() {
    RunSet base, next;
    minute_ = 0;
    noise_now_ = noise_(engine_);
    if (plan_.order != "blocks") {
      start_session(0);
      for (int i = 0; i < plan_.base_runs; ++i) {
        const bool base_first = plan_.order == "ABAB" || i % 2 == 0;
        for (const bool of_base : {base_first, !base_first}) take(of_base ? base : next, of_base);
      }
    } else {
      for (int session = 0; session <= plan_.base_sessions; ++session) {
        const bool of_base = session < plan_.base_sessions;
        // A base of one session shares it with the new runs.
        if (of_base || plan_.base_sessions > 1) start_session(session);
        for (int i = 0; i < (of_base ? plan_.base_runs : plan_.new_runs); ++i) {
          take(of_base ? base : next, of_base);
        }
      }
    }
    return compare(base, next, {});
  }

 private:
  void start_session(int number) {
    day_ = number;
    level_ = plan_.between * noise_(engine_);
  }
  void take(RunSet& side, bool of_base) {
    const double kept = plan_.autocorrelation;
    noise_now_ = kept * noise_now_ + std::sqrt(1 - kept * kept) * noise_(engine_);
    const double log = level_ + plan_.spread * noise_now_ + plan_.drift * minute_ +
                       (of_base ? 0 : std::log(1 - plan_.drop));
    SetRun run = shape_.arms[0].runs[0];
    run.run.throughput = 1000 * std::exp(log);
    run.run.started_at = time_at(minute_++);
    run.run.started_at[8] = static_cast<char>('0' + day_ / 10);
    run.run.started_at[9] = static_cast<char>('0' + day_ % 10);
    add_run(side, "run", run, shape_.environments);
  }

  PlanOfRuns plan_;
  RunSet shape_ = made_up_set({{"run", {1}}});
  std::mt19937_64 engine_{32};
  std::normal_distribution<double> noise_;
  double noise_now_ = 0, level_ = 0;
  int minute_ = 0, day_ = 0;
};

TEST(SessionSimulation, TheTableOfDependentRunsIsTrue) {
  constexpr int count = 400;
  std::ifstream file(NM_NOTES_FOLDER "/error_rates.md");
  int rows = 0;
  for (std::string line; std::getline(file, line);) {
    PlanOfRuns plan;
    char order[16] = {};
    double slower = 0, equivalent = 0;
    if (std::sscanf(line.c_str(),
                    "| %d x %d | %d | %15s | %lf %% | %lf %% | %lf | %lf %% | %lf %% | %lf %% | "
                    "%lf %% |",
                    &plan.base_sessions, &plan.base_runs, &plan.new_runs, order, &plan.between,
                    &plan.drift, &plan.autocorrelation, &plan.spread, &plan.drop, &slower,
                    &equivalent) != 11) {
      continue;
    }
    ++rows;
    plan.order = order;
    for (double* percent : {&plan.between, &plan.drift, &plan.spread, &plan.drop}) *percent /= 100;
    PlannedRuns runs(plan);
    int found_slower = 0, found_equivalent = 0;
    for (int i = 0; i < count; ++i) {
      const Verdict verdict = runs.next().rows.at(0).verdict;
      found_slower += verdict == Verdict::slower;
      found_equivalent += verdict == Verdict::equivalent;
    }
    const auto expect = [&](double shown, int found, const char* column) {
      const double share = static_cast<double>(found) / count;
      const double error = std::sqrt(std::max(0.001, share * (1 - share)) / count);
      EXPECT_NEAR(shown / 100, share, 4 * error) << line << ": " << column;
    };
    expect(slower, found_slower, "SLOWER");
    expect(equivalent, found_equivalent, "EQUIVALENT");
  }
  EXPECT_GE(rows, 15);
}

// A baseline that takes each new run which passed its gate follows a loss in small steps.
// Returns the loss at which a gate failed; none of 40 did: 1.
double loss_seen(double loss_of_a_gate, bool with_anchor) {
  std::mt19937_64 engine(33);
  std::normal_distribution<double> noise;
  RunSet history;
  for (int number = 0; number < 40; ++number) {
    const double level = 1000 * std::pow(1 - loss_of_a_gate, number);
    std::vector<double> runs;
    for (int i = 0; i < 5; ++i) runs.push_back(level * std::exp(0.002 * noise(engine)));
    Report report = made_up_report({{"run", runs}});
    for (auto& run : report.arms[0].runs) {
      run.started_at[6] = static_cast<char>('1' + number / 20);
      run.started_at[8] = static_cast<char>('0' + number % 20 / 10);
      run.started_at[9] = static_cast<char>('0' + number % 10);
    }
    RunSet next;
    add_runs(next, report, "made up");
    if (number > 0) {
      Baseline baseline = matching_runs(history, next, {});
      if (!with_anchor) baseline.anchor = {};
      const auto gated = judge_sequentially(baseline, next, {}, {}, 0, {});
      if (gated.second.exit_code != ExitCode::ok) return 1 - level / 1000;
    }
    add_runs(history, report, "made up");
  }
  return 1;
}

TEST(SessionSimulation, TheAnchorEndsASlowLoss) {
  EXPECT_EQ(loss_seen(0.006, false), 1) << "down to -21 %";
  EXPECT_LT(loss_seen(0.006, true), 0.06);
  EXPECT_EQ(loss_seen(0, true), 1) << "no loss, no failure";
}

}  // namespace
}  // namespace nearmetal
