#include "reports/json/survey_fields.h"

#include "base/errors.h"
#include "reports/json/report_fields.h"

namespace nearmetal {
namespace {

void require_unit(const Report& report, const SurveyUnit& unit, const char* list) {
  const auto environments = std::ssize(report.environments);
  const bool is_there =
      unit.environment < environments &&
      (!unit.gpu || *unit.gpu < std::ssize(report.environments[unit.environment].gpus));
  if (is_there) return;
  throw InvalidReport(std::string("/survey/") + list +
                      " has a unit on a machine or GPU that is not among the environments");
}

}  // namespace

void require_consistent_survey(const Report& report) {
  for (const SurveyFamily& family : report.survey->families) {
    for (const SurveyMember& member : family.members) {
      for (const SurveyUnit& unit : member.units) require_unit(report, unit, "families");
    }
  }
  for (const SurveySuspect& suspect : report.survey->suspects) {
    for (const SurveyUnit& unit : suspect.units) require_unit(report, unit, "suspects");
  }
  for (const SurveyFault& fault : report.survey->faults) require_unit(report, fault.unit, "faults");
}

namespace json {

void fields(Archive& field, SurveyUnit& unit) {
  field.type("survey_unit", "A GPU, or a rank on CPUs; with neither of them a host");
  field("environment", unit.environment, at_least(0), "Index into environments");
  field("gpu", unit.gpu, at_least(0), "Index into its gpus");
  field("rank", unit.rank, at_least(0), "Of the arm of all ranks");
}

void fields(Archive& field, SurveyMember& member) {
  field.type("survey_member");
  field("units", member.units, "One, or the two of a link");
  field("difference", member.difference, "Relative to the centre: -0.03 is 3 % less");
}

void fields(Archive& field, SurveyFamily& family) {
  field.type("survey_family",
             "Members of one kind, which are compared with one another: devices at work for "
             "themselves, links between two of them, the mean of a device's links, or the "
             "median of a host's devices");
  field("part", family.part);
  field("kind", family.kind, "Of hardware");
  field("centre", family.centre, above(0), "Samples per second of a device, or bytes per second");
  field("spread", family.spread, at_least(0),
        "Standard deviation of the logarithms of those that do not stand out");
  field("degrees_of_freedom", family.degrees_of_freedom, above(0), "Of the spread");
  field("found_from", family.found_from, within(0, 1),
        "A member slower by this share is suspected with 95 % chance");
  field("by_baseline", family.by_baseline, "The spread is that of the survey given as baseline");
  field("members", family.members, "Slowest first");
}

void fields(Archive& field, SurveySuspect& suspect) {
  field.type("survey_suspect", "A member that was slow at the first look");
  field("part", suspect.part);
  field("kind", suspect.kind);
  field("units", suspect.units);
  field("difference", suspect.difference, "Of the fresh runs alone, relative to the others");
  field("lower", suspect.lower, "Of its interval, which errs as often as error_rate says");
  field("upper", suspect.upper);
  field("confirmed", suspect.confirmed, "Slow in the fresh runs, too");
  field("known", suspect.known, "Confirmed by the survey given as baseline, too");
  field("causes", suspect.causes, "Seen on it alone");
}

void fields(Archive& field, SurveyFault& fault) {
  field.type("survey_fault", "A device that computed other bits than most of its kind");
  field("unit", fault.unit);
  field("arm", fault.arm);
  field("step", fault.step, at_least(0), "The first that differs");
  field("what", fault.what, "The first parameter that differs, or loss");
  field("certain", fault.certain, "false: too few of its kind to say which is wrong");
  field("permanent", fault.permanent, "In every run, by the same bits; null: there is one alone");
}

void fields(Archive& field, Survey& survey) {
  field.type("survey", "Which devices, links and hosts are slow, and which compute other bits");
  field("error_rate", survey.error_rate, within(0, 1),
        "Of surveys in which all is well, those with a suspect of one part");
  field("repeats", survey.repeats, at_least(1), "Of the first look; later runs are fresh");
  field("families", survey.families);
  field("suspects", survey.suspects);
  field("faults", survey.faults);
  field("silent_hosts", survey.silent_hosts,
        "Which do not answer; left out where that was seen at the start");
}

}  // namespace json
}  // namespace nearmetal
