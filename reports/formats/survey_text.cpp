#include "reports/formats/survey_text.h"

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "reports/formats/charts/charts.h"
#include "reports/survey/survey.h"

namespace nearmetal {
namespace {

constexpr size_t most_listed = 10;  // of a family

std::string plural_of(SurveyPart part, const std::string& kind, int64_t count) {
  switch (part) {
    case SurveyPart::device:
      return counted(count, kind);
    case SurveyPart::link:
      return counted(count, "link");
    case SurveyPart::links:
      return counted(count, "device") + " by their links";
    case SurveyPart::host:
      return counted(count, "host");
  }
  return "";
}

std::string centre_text(const Report& report, const SurveyFamily& family) {
  switch (family.part) {
    case SurveyPart::device:
      return significant(family.centre, 5) + " " +
             words_of(report.arms.at(0).runs.at(0).sample).rate;
    case SurveyPart::link:
      return significant(1e-9 * family.centre, 4) + " GB/s";
    default:
      return "-";
  }
}

std::string difference_text(const SurveySuspect& suspect) {
  if (!suspect.difference) return suspect.difference.reason;
  return signed_percent(*suspect.difference, {*suspect.lower, *suspect.upper});
}

std::string verdict_text(const SurveySuspect& suspect) {
  if (!suspect.confirmed) return "not confirmed";
  return suspect.known ? "SLOW, as before" : "SLOW";
}

std::string causes_text(const std::vector<Finding>& causes) {
  return joined(transformed(causes, [](const Finding& cause) { return cause.seen; }), "; ");
}

std::string part_text(SurveyPart part) {
  return part == SurveyPart::links ? "its links" : part == SurveyPart::host ? "its devices" : "";
}

std::string name_of(const Report& report, const SurveySuspect& suspect) {
  const std::string what = part_text(suspect.part);
  return units_text(report, suspect.units) + (what.empty() ? "" : " (" + what + ")");
}

std::string fault_text(const Report& report, const SurveyFault& fault) {
  return units_text(report, {fault.unit}) +
         (fault.certain ? " computes wrong bits" : " computes other bits than others of its kind") +
         " in " + fault.arm + ", from step " + std::to_string(fault.step) + " on (" + fault.what +
         ")" +
         (!fault.permanent   ? ""
          : *fault.permanent ? ", in every run"
                             : ", not in every run") +
         (fault.certain ? "" : "; too few of the kind to say which is wrong");
}

void add_headlines(const Report& report, Page& page) {
  const Survey& survey = *report.survey;
  if (report.status != Status::complete) {
    page.headlines.push_back(report.status == Status::failed ? "runs failed: not all was looked at"
                                                             : "the survey is not finished");
  }
  if (!survey.silent_hosts.empty()) {
    page.headlines.push_back("hosts that do not answer: " + joined(survey.silent_hosts));
  }
  for (const SurveyFault& fault : survey.faults) {
    page.headlines.push_back(fault_text(report, fault));
  }
  for (const SurveySuspect& suspect : survey.suspects) {
    if (!suspect.difference) {
      page.headlines.push_back(name_of(report, suspect) +
                               " is suspected, and was not looked at again");
    }
    if (!suspect.confirmed) continue;
    page.headlines.push_back(name_of(report, suspect) + " is slow" +
                             (suspect.known ? ", as before: " : ": ") + difference_text(suspect) +
                             " against the others" +
                             (suspect.causes.empty() ? "" : "; " + causes_text(suspect.causes)));
  }
  std::vector<std::string> judged, unjudged;
  for (const SurveyFamily& family : survey.families) {
    const auto slow = std::ranges::count_if(survey.suspects, [&](const SurveySuspect& suspect) {
      return (suspect.confirmed || !suspect.difference) && suspect.part == family.part &&
             suspect.kind == family.kind;
    });
    if (slow > 0) continue;
    (family.found_from ? judged : unjudged)
        .push_back(plural_of(family.part, family.kind, std::ssize(family.members)));
  }
  if (!judged.empty()) page.headlines.push_back("none is shown to be slow of " + joined(judged));
  if (!unjudged.empty()) {
    page.headlines.push_back("not judged, as fewer than 4 are of a kind: " + joined(unjudged));
  }
}

// Names the arms whose ranks all computed what others of their kind did.
void add_same_bits(const Report& report, Page& page) {
  std::vector<std::string> same;
  int64_t most = 0;
  for (const Arm& arm : report.arms) {
    int64_t ranks = 0;
    for (const Run& run : arm.runs) {
      int64_t of_run = 0;
      for (const DigestGroup& group : run.digests) {
        if (group.ranks.size() > 1) of_run += std::ssize(group.ranks);
      }
      ranks = std::max(ranks, of_run);
    }
    if (ranks < 2 || find_in(report.survey->faults, arm.name, &SurveyFault::arm)) continue;
    same.push_back(arm.name);
    most = std::max(most, ranks);
  }
  if (same.empty()) return;
  page.headlines.push_back("all " + std::to_string(most) +
                           " compute the same bits as others of their kind (" + joined(same) + ")");
}

TitledTable suspects_table(const Report& report) {
  TitledTable titled;
  titled.title = "Suspects";
  titled.legend = "By fresh runs alone, relative to the others of the kind.";
  titled.table.columns = {{"who"}, {"difference", true}, {"verdict"}, {"seen there alone"}};
  for (const SurveySuspect& suspect : report.survey->suspects) {
    titled.table.rows.push_back({name_of(report, suspect), difference_text(suspect),
                                 verdict_text(suspect),
                                 suspect.causes.empty() ? "-" : causes_text(suspect.causes)});
  }
  return titled;
}

TitledTable families_table(const Report& report) {
  TitledTable titled;
  titled.title = "What was compared";
  titled.legend =
      "The spread is the standard deviation of those that do not stand out; one that is slower by "
      "the last column is suspected with 95 % chance.";
  titled.table.columns = {{"what"},         {"kind"},         {"members", true},
                          {"centre", true}, {"spread", true}, {"found from", true}};
  for (const SurveyFamily& family : report.survey->families) {
    titled.table.rows.push_back({to_string(family.part), family.kind,
                                 std::to_string(family.members.size()), centre_text(report, family),
                                 family.spread ? percent(*family.spread) : "-",
                                 family.found_from ? percent(*family.found_from) : "not judged"});
  }
  return titled;
}

TitledTable members_table(const Report& report, const SurveyFamily& family) {
  TitledTable titled;
  titled.title = std::string(to_string(family.part)) + ": " + family.kind + ", the slowest first";
  titled.table.columns = {{"who"}, {"from the centre", true}};
  const size_t shown = std::min(family.members.size(), most_listed);
  for (const SurveyMember& member : std::span(family.members).first(shown)) {
    titled.table.rows.push_back(
        {units_text(report, member.units), signed_percent(member.difference)});
  }
  if (shown < family.members.size()) {
    titled.legend = counted(std::ssize(family.members) - static_cast<ptrdiff_t>(shown), "other") +
                    " not listed; the report has all.";
  }
  return titled;
}

Plot members_plot(const Report& report, const SurveyFamily& family) {
  Series others{.colour = 0}, suspects{.title = "suspects", .colour = 1};
  std::vector<std::string> rows;
  double most = *family.found_from;
  for (const SurveyMember& member : family.members) {
    most = std::max(most, std::abs(member.difference));
    if (rows.size() == most_rows) continue;
    const bool is_suspect =
        std::ranges::any_of(report.survey->suspects, [&](const SurveySuspect& suspect) {
          return suspect.part == family.part && suspect.units == member.units;
        });
    (is_suspect ? suspects : others)
        .marks.push_back({100 * member.difference, static_cast<double>(rows.size())});
    rows.push_back(units_text(report, member.units));
  }
  Plot plot{.title = std::string(to_string(family.part)) + ": " + family.kind,
            .x = {.title = "% from the centre", .begin = -105 * most, .end = 105 * most},
            .y = row_axis(rows),
            .rows = true,
            .height = height_of_rows(rows.size()),
            .band = Interval{-100 * *family.found_from, 100 * *family.found_from},
            .series = {others}};
  if (!suspects.marks.empty()) plot.series.push_back(suspects);
  return plot;
}

Chart members_chart(const Report& report) {
  Chart chart{.name = "members",
              .title = "How far the members of each kind lie apart",
              .caption = "First look, the slowest " + std::to_string(most_rows) +
                         " at most. One left of the grey is suspected with 95 % chance or more."};
  for (const SurveyFamily& family : report.survey->families) {
    if (family.found_from) chart.plots.push_back(members_plot(report, family));
  }
  if (chart.plots.empty()) return missing_chart(chart, "fewer than 4 are of a kind");
  chart.table = families_table(report).table;
  return chart;
}

}  // namespace

Page survey_page(const Report& report) {
  const Survey& survey = *report.survey;
  Page page{.title = "nearmetal: survey"};
  add_headlines(report, page);
  add_same_bits(report, page);
  add_table(page.tables, suspects_table(report));
  add_table(page.tables, families_table(report));
  for (const SurveyFamily& family : survey.families) {
    if (family.part == SurveyPart::device || family.found_from) {
      page.tables.push_back(members_table(report, family));
    }
  }
  page.charts.push_back(members_chart(report));
  page.remarks.push_back(
      "of surveys in which all is well, at most " + percent(survey.error_rate) +
      " suspect anybody of a kind; first look: " + counted(survey.repeats, "run") + " each");
  return page;
}

}  // namespace nearmetal
