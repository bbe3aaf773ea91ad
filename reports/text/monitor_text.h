// What the monitor saw, in words.
#pragma once

#include <string>
#include <vector>

#include "reports/document/monitoring.h"

namespace nearmetal {

/// "other processes kept 1.50 CPUs busy"
std::string text_of(const MonitorReason& reason);

/// The sentences of all.
std::vector<std::string> texts_of(const std::vector<MonitorReason>& reasons);

/// What a sentence of text_of() says: reports before 1.14 have those alone. Of one that is not
/// known nothing but the sentence is.
MonitorReason reason_from(const std::string& sentence);

}  // namespace nearmetal
