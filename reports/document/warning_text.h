// Warnings, what the monitor saw, and the figures by which both are judged, in words.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "reports/document/monitoring.h"
#include "reports/document/types.h"
#include "reports/document/warning.h"

namespace nearmetal {

/// "39.1 %", "3", "1.99 CPUs", "2.50 s", "12.0 times".
std::string figure_text(const Figure& figure);

/// The same of the least and the most of figures of one unit: "1.74 to 1.99 CPUs".
std::string figures_text(const Figure& least, const Figure& most);

/// "rank 1, stage 0 (vm0)"
std::string rank_text(int64_t rank, std::optional<int64_t> stage, const std::string& host);

/// The job and the rank that gave the warning: "job 2", "rank 1, stage 0 (vm0)"; empty: all.
std::vector<std::string> givers_of(const Warning& warning);

/// The text after those who gave the warning: "job 2: rank 1 (vm0): step times were not steady".
std::string attributed_text(const Warning& warning);

/// Sets the text, who gave it, and of a monitor's verdict the figure, from what attributed_text()
/// made: reports before 1.14 have all these in the text alone.
void set_attributed_text(const std::string& attributed, Warning& warning);

/// The warning of a verdict that is not clean, with the figure of its worst reason.
Warning warning_of(const Monitoring& monitoring);

/// "other processes kept 1.50 CPUs busy"
std::string text_of(const MonitorReason& reason);

/// A sentence for each reason.
std::vector<std::string> texts_of(const std::vector<MonitorReason>& reasons);

/// The reason that a sentence of text_of() was made of: reports before 1.14 have sentences alone.
/// An unknown sentence becomes the `why` of a reason without a figure.
MonitorReason reason_from(const std::string& sentence);

/// "4 jobs, MIG: unsupported: MIG is off"
std::string unsupported_text(const UnsupportedArm& arm);

}  // namespace nearmetal
