// Warnings, what the monitor saw, and the figures by which both are judged, in words.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "reports/document/figure.h"
#include "reports/document/monitoring.h"
#include "reports/document/warning.h"

namespace nearmetal {

/// "39.1 %", "3", "1.99 CPUs", "2.50 s", "12.0 times".
std::string figure_text(const Figure& figure);

/// The same of the least and the most of figures of one unit: "1.74 to 1.99 CPUs".
std::string figures_text(const Figure& least, const Figure& most);

/// "rank 1, stage 0 (vm0)"
std::string rank_text(int64_t rank, std::optional<int64_t> stage, const std::string& host);

/// Who gave it: "job 2", "rank 1, stage 0 (vm0)"; empty: all.
std::vector<std::string> givers_of(const Warning& warning);

/// The text behind who gave it: "job 2: rank 1 (vm0): step times were not steady".
std::string told_text(const Warning& warning);

/// Sets the text, who gave it, and of a monitor's verdict the figure, from what told_text() made:
/// reports before 1.14 have all these in the text alone.
void take_told_text(const std::string& told, Warning& warning);

/// "other processes kept 1.50 CPUs busy"
std::string text_of(const MonitorReason& reason);

/// The sentences of all.
std::vector<std::string> texts_of(const std::vector<MonitorReason>& reasons);

/// What a sentence of text_of() says: reports before 1.14 have those alone. Of one that is not
/// known nothing but the sentence is.
MonitorReason reason_from(const std::string& sentence);

}  // namespace nearmetal
