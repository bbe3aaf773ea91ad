// The part of a report about a survey: which GPUs, links and hosts are slower than others of their
// kind, and which GPUs compute other bits.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/value.h"
#include "reports/document/warning.h"

namespace nearmetal {

/// device: a GPU, or a rank on CPUs, at work for itself beside all others. link: two that sum
/// gradients. links: the mean of a device's links. host: the median of a host's devices.
enum class SurveyPart { device, link, links, host };
constexpr auto names_of(SurveyPart) { return std::array{"device", "link", "links", "host"}; }

/// A GPU, or on CPUs a rank; with neither a host.
struct SurveyUnit {
  int64_t environment = 0;        // index into Report::environments
  std::optional<int64_t> gpu{};   // index into its gpus
  std::optional<int64_t> rank{};  // of the job of all

  bool operator==(const SurveyUnit&) const = default;
  auto operator<=>(const SurveyUnit&) const = default;
};

using SurveyUnits = std::vector<SurveyUnit>;  // one, or the two of a link

struct SurveyMember {
  SurveyUnits units;
  double difference = 0;  // relative to the centre: -0.03 is 3 % less
};

/// Those that are compared with one another.
struct SurveyFamily {
  SurveyPart part{};
  std::string kind;   // of hardware: "NVIDIA H200", "NVIDIA H200, NVLink"
  double centre = 0;  // samples per second of a device, bytes per second of a link
  // The standard deviation of the logarithms of those that do not stand out, and how well it is
  // known; not where they are too few to be judged.
  Maybe<double> spread;
  Maybe<double> degrees_of_freedom;
  bool by_baseline = false;           // the spread is that of an earlier survey
  Maybe<double> found_from;           // a member slower by this share is suspected with 95 % chance
  std::vector<SurveyMember> members;  // slowest first
};

/// A member that was slow at the first look, and what fresh runs showed.
struct SurveySuspect {
  SurveyPart part{};
  std::string kind;
  SurveyUnits units;
  // The fresh runs alone give these; the interval, one-sided, errs as often as the survey may.
  Maybe<double> difference, lower, upper;
  bool confirmed = false;
  bool known = false;           // to the survey that was given as baseline
  std::vector<Finding> causes;  // seen on it alone
};

/// A device that computed other bits than most of its kind.
struct SurveyFault {
  SurveyUnit unit;
  std::string arm;
  int64_t step = 0;                 // the first
  std::string what;                 // a parameter, or "loss"
  bool certain = true;              // false: too few of its kind to say who is wrong
  std::optional<bool> permanent{};  // in every run, by the same bits; none: there is one alone
};

/// The share of surveys in which all is well that have a suspect of one part and kind.
inline constexpr double survey_error_rate = 0.05;

struct Survey {
  double error_rate = survey_error_rate;  // as it was judged by
  int64_t repeats = 1;                    // of the first look; later runs are fresh
  std::vector<SurveyFamily> families;
  std::vector<SurveySuspect> suspects;
  std::vector<SurveyFault> faults;
  std::vector<std::string> silent_hosts;  // which do not answer
};

}  // namespace nearmetal
