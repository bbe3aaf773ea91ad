// Made-up fleets, at fixed seeds: how often a survey suspects a unit where none is slow, and how
// often it finds one that is.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <fstream>
#include <map>
#include <numeric>
#include <optional>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "reports/statistics/outliers.h"

namespace nearmetal {
namespace {

constexpr double alpha = 0.05;

enum class Shape { normal, heavy };  // Student's t with 5 degrees

// Fleets whose units spread by 1.
struct Fleets {
  size_t units = 8;
  Shape shape = Shape::normal;
  size_t slow = 1;        // units that are slow, where any is
  double fast = 0;        // by so many spreads the last one is fast
  double degrees = 0;     // of the spread that an earlier survey tells; 0: none does
  double noise = 1;       // share of the variance that is another in fresh repeats; has the shape
  std::string text = {};  // in the table
};

class Survey {
 public:
  explicit Survey(const Fleets& fleets) : fleets_(fleets), own_(fleets.units) {}

  // A new fleet.
  void draw() {
    for (double& unit : own_) unit = std::sqrt(1 - fleets_.noise) * drawn();
    own_.back() += fleets_.fast;
    first_ = measured();
    if (fleets_.degrees > 0) {
      std::chi_squared_distribution<double> squares(fleets_.degrees);
      known_ = UnitSpread{std::sqrt(squares(engine_) / fleets_.degrees), fleets_.degrees};
    }
  }

  FleetSpeed suspected(double spreads) const {
    return *fleet_speed(slowed(first_, spreads), alpha, known_);
  }

  // Those that fresh repeats confirm.
  std::vector<SlowUnit> confirmed(double spreads) {
    std::vector<size_t> suspects;
    for (const SlowUnit& slow : suspected(spreads).suspects) suspects.push_back(slow.unit);
    auto found = *repeated_suspects(slowed(measured(), spreads), suspects, known_);
    std::erase_if(found, [](const SlowUnit& slow) { return slow.p >= alpha; });
    return found;
  }

  bool has_all(const std::vector<SlowUnit>& found) const {
    size_t known = 0;
    for (const SlowUnit& slow : found) known += slow.unit < fleets_.slow;
    return known == fleets_.slow;
  }

 private:
  std::vector<double> measured() {
    std::vector<double> logs = own_;
    for (double& log : logs) log += std::sqrt(fleets_.noise) * drawn();
    return logs;
  }

  double drawn() {
    const double heavy = std::sqrt(5.0 / 3);  // deviation of Student's t with 5 degrees
    return fleets_.shape == Shape::normal ? normal_(engine_) : student_(engine_) / heavy;
  }

  std::vector<double> slowed(std::vector<double> logs, double spreads) const {
    for (size_t i = 0; i < fleets_.slow; ++i) logs[i] -= spreads;
    return logs;
  }

  Fleets fleets_;
  std::mt19937_64 engine_{20261129};
  std::normal_distribution<double> normal_;
  std::student_t_distribution<double> student_{5};
  std::vector<double> own_, first_;
  std::optional<UnitSpread> known_;
};

// The first: fleets in which a unit is suspected though none is slow. Then those in which all slow
// units are suspects, where they are slow by so many spreads.
const std::vector<double> table_spreads = {3, 4, 5, 6, 6.5, 7, 8, 9, 10};

std::vector<double> shares(const Fleets& fleets, int count, const std::vector<double>& spreads) {
  Survey survey(fleets);
  std::vector<double> found(spreads.size() + 1);
  for (int i = 0; i < count; ++i) {
    survey.draw();
    found[0] += !survey.suspected(0).suspects.empty();
    for (size_t j = 0; j < spreads.size(); ++j) {
      found[j + 1] += survey.has_all(survey.suspected(spreads[j]).suspects);
    }
  }
  for (double& share : found) share /= count;
  return found;
}

// Fleets in which repeats confirm a unit though none is slow, and a slow one.
std::vector<double> confirmed_shares(const Fleets& fleets, int count) {
  Survey survey(fleets);
  std::vector<double> found(3);
  for (int i = 0; i < count; ++i) {
    survey.draw();
    found[0] += !survey.suspected(0).suspects.empty();
    found[1] += !survey.confirmed(0).empty();
    found[2] += survey.has_all(survey.confirmed(fleets.units < 16 ? 9 : 6.5));
  }
  for (double& share : found) share /= count;
  return found;
}

double error_of(double share, int count) {
  return std::sqrt(std::max(0.001, share * (1 - share)) / count);
}

TEST(FleetSimulation, FalseAlarmsAreAtMostAlpha) {
  constexpr int count = 4000;
  for (const size_t units : {4, 5, 7, 8, 9, 12, 16, 24, 40}) {
    for (const Fleets& fleets : {Fleets{.units = units}, Fleets{.units = units, .fast = 10},
                                 Fleets{.units = units, .degrees = 15}}) {
      const double share = shares(fleets, count, {})[0];
      EXPECT_LE(share, alpha + 3 * error_of(alpha, count)) << units << " units";
    }
    EXPECT_GE(shares({.units = units}, count, {})[0], 0.025) << "the test is not idle";
  }
}

TEST(FleetSimulation, ASlowUnitIsFound) {
  EXPECT_GE(shares({.units = 8}, 1000, {9})[1], 0.95);
  EXPECT_GE(shares({.units = 16}, 1000, {6.5})[1], 0.95);
  EXPECT_GE(shares({.units = 64}, 300, {6.5})[1], 0.95);
  EXPECT_GE(shares({.units = 8, .slow = 2}, 1000, {9})[1], 0.95);
  EXPECT_GE(shares({.units = 8, .degrees = 63}, 1000, {7})[1], 0.95);
}

TEST(FleetSimulation, WhatIsDetectableIsDetected) {
  constexpr int count = 2000;
  for (const double degrees : {0.0, 15.0}) {
    std::optional<UnitSpread> known;
    if (degrees > 0) known = UnitSpread{1e-3, degrees};
    const FleetSpeed others{0, {1e-3, 6}, 0, 7, {}};
    const double slowness = detectable_slowness(others, alpha, 0.8, known);
    const double spreads = -std::log1p(-slowness) / 1e-3;
    const double found = shares({.units = 8, .degrees = degrees}, count, {spreads})[1];
    EXPECT_NEAR(found, 0.8, 4 * error_of(0.8, count)) << spreads;
  }
}

TEST(FleetSimulation, FreshRepeatsConfirmTheSlowUnitAndHardlyAnyOther) {
  constexpr int count = 1000;
  for (const Fleets& fleets : {Fleets{.units = 8}, Fleets{.units = 16, .noise = 0.5},
                               Fleets{.units = 64, .shape = Shape::heavy}}) {
    const auto found = confirmed_shares(fleets, count);
    EXPECT_LE(found[1], alpha) << fleets.units << " units";
    EXPECT_GE(found[2], 0.95) << fleets.units << " units";
  }
}

std::vector<Fleets> rows_of_table() {
  std::vector<Fleets> rows;
  for (const size_t units : {4, 8, 16, 64, 512, 10'000}) {
    rows.push_back({.units = units, .text = "one slow"});
    if (units > 4) rows.push_back({.units = units, .slow = 2, .text = "two slow"});
    if (units > 4) rows.push_back({.units = units, .fast = 10, .text = "one slow, one fast by 10"});
    rows.push_back({.units = units, .shape = Shape::heavy, .text = "one slow, heavy tails"});
    rows.push_back({.units = units, .degrees = 15, .text = "one slow, spread known by 15"});
    rows.push_back({.units = units, .degrees = 63, .text = "one slow, spread known by 63"});
  }
  return rows;
}

std::vector<Fleets> rows_of_repeats() {
  std::vector<Fleets> rows;
  for (const size_t units : {8, 16, 64, 512, 10'000}) {
    for (const Shape shape : {Shape::normal, Shape::heavy}) {
      const std::string tails = shape == Shape::heavy ? ", heavy tails" : "";
      rows.push_back({.units = units, .shape = shape, .text = "noise" + tails});
      rows.push_back({.units = units, .shape = shape, .noise = 0.5, .text = "both" + tails});
      rows.push_back({.units = units, .shape = shape, .noise = 0, .text = "the units" + tails});
    }
  }
  return rows;
}

std::string name_of(const Fleets& row) { return std::to_string(row.units) + "|" + row.text; }

std::string trimmed(const std::string& cell) {
  const size_t first = cell.find_first_not_of(' ');
  return first == std::string::npos ? ""
                                    : cell.substr(first, cell.find_last_not_of(' ') - first + 1);
}

// Shares by the first two cells of each row of the notes.
std::map<std::string, std::vector<double>> shares_in_notes() {
  std::ifstream file(NM_NOTES_FOLDER "/survey.md");
  std::map<std::string, std::vector<double>> rows;
  for (std::string line; std::getline(file, line);) {
    std::istringstream cells(line);
    std::string before, units, text;
    std::getline(cells, before, '|');
    if (!std::getline(cells, units, '|') || !std::getline(cells, text, '|')) continue;
    std::vector<double> shares;
    for (std::string cell; std::getline(cells, cell, '|');)
      shares.push_back(std::atof(cell.c_str()) / 100);
    rows[trimmed(units) + "|" + trimmed(text)] = shares;
  }
  return rows;
}

void expect_as_in_notes(const Fleets& row, const std::vector<double>& found, int count) {
  const auto shown = shares_in_notes()[name_of(row)];
  ASSERT_EQ(shown.size(), found.size()) << name_of(row);
  for (size_t i = 0; i < found.size(); ++i) {
    EXPECT_NEAR(shown[i], found[i], 4 * error_of(shown[i], count))
        << name_of(row) << ": share " << i;
  }
}

constexpr int fleets_of_table = 1000;

TEST(FleetSimulation, TheTableOfTheNotesIsTrue) {
  for (const Fleets& row : rows_of_table()) {
    const auto found = shares(row, fleets_of_table, table_spreads);
    expect_as_in_notes(row, found, fleets_of_table);
    if (row.shape == Shape::normal) {
      EXPECT_LE(found[0], alpha + 3 * error_of(alpha, fleets_of_table)) << name_of(row);
    }
    const bool is_own = row.shape == Shape::normal && row.fast == 0 && row.degrees == 0;
    if (is_own && row.units > 4 && (row.slow == 1 || row.units == 8)) {
      EXPECT_GE(found[row.units < 16 ? 8 : 5], 0.95) << name_of(row);
    }
  }
  for (const Fleets& row : rows_of_repeats()) {
    expect_as_in_notes(row, confirmed_shares(row, fleets_of_table), fleets_of_table);
  }
}

void print_row(const Fleets& row, const std::vector<double>& found) {
  std::printf("| %zu | %s |", row.units, row.text.c_str());
  for (const double share : found) std::printf(" %.1f %% |", 100 * share);
  std::printf("\n");
  std::fflush(stdout);
}

// No test, as it takes minutes and checks nothing: it prints the rows of the notes anew, by
// --gtest_also_run_disabled_tests --gtest_filter='FleetSimulation.*PrintTheTables'.
TEST(FleetSimulation, DISABLED_PrintTheTables) {
  for (const Fleets& row : rows_of_table())
    print_row(row, shares(row, fleets_of_table, table_spreads));
  for (const Fleets& row : rows_of_repeats())
    print_row(row, confirmed_shares(row, fleets_of_table));
}

}  // namespace
}  // namespace nearmetal
