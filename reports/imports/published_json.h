// Published logs of other programs as a report of kind imported.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "reports/document/types.h"

namespace nearmetal {

/// Sides of a published comparison.
enum class PublishedSide { bare_metal, vm };
constexpr auto names_of(PublishedSide) { return std::array{"bare-metal", "vm"}; }

struct ImportOptions {
  ImportFormat format{};
  std::vector<std::string> files{};
  std::optional<std::string> origin{};  // where they were published
  std::optional<std::string> arm{};     // of all results; empty: as the files name their work
  std::optional<PublishedSide> side{};  // of pairs
};

/// The results of all files: without what this program alone can know, which the caller adds (tool,
/// invocation). Throws InvalidReport, naming file and line, for what is not as its reader needs it;
/// std::invalid_argument for a file that is given twice.
Report published_report(const ImportOptions& options);

}  // namespace nearmetal
