// Which GPUs, links and hosts of a fleet are slow, and which GPUs compute other bits, by the runs
// of a survey's report.
#pragma once

#include <optional>
#include <vector>

#include "reports/document/types.h"

namespace nearmetal {

/// The runs tell by what they measured, whatever the names of their arms: ranks that train for
/// themselves show devices and hosts, jobs of two ranks links, digests bits. The first `repeats`
/// runs of an arm are the first look, which names suspects; only later ones are judged, so that a
/// verdict does not rest on the runs for which its suspect was picked. The spread of a family is
/// that of `baseline` where that survey has one of the part and kind. Units are of the report.
Survey survey_of(const Report& report, int64_t repeats, const Report* baseline = nullptr);

/// Whether a suspect is confirmed, somebody computes other bits, or a host does not answer.
bool is_anybody_wrong(const Survey& survey);
/// Whether a family had enough members, and all suspects fresh runs.
bool was_judged(const Survey& survey);

/// "GPU 0000:1B:00.0 of node1", "rank 5 of node1", "node1", and both of a link.
std::string units_text(const Report& report, const SurveyUnits& units);

/// Suspects, faults and silent hosts of `next` that `base` does not have, as surveys of the same
/// machines: by the UUIDs of GPUs, else by names of hosts. Throws NotComparable where these were
/// left out.
Survey new_since(const Report& base, const Report& next);

/// The kind of hardware that counts where devices are compared.
std::string kind_of(const Report& report, const SurveyUnit& unit);

/// The unit that a rank is.
SurveyUnit unit_of(const Rank& rank);

}  // namespace nearmetal
