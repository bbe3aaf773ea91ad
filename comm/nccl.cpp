#include "comm/nccl.h"

#include <sstream>
#include <stdexcept>

#include "base/pattern.h"
#include "base/text.h"
#include "models/load_module.h"

namespace nearmetal {

Nccl& load_nccl() {
  static Nccl& nccl =
      *reinterpret_cast<NcclEntry>(load_module("nccl", "NCCL module", nccl_entry_name))();
  return nccl;
}

Maybe<NcclChoices> parse_nccl_log(const std::string& log, size_t earlier_bytes,
                                  const std::string& operations) {
  const Pattern sum(
      "\\b(" + operations +
      R"(): (\d+) Bytes -> Algo (\w+) proto (\w+) channel\{Lo\.\.Hi\}=\{(\d+)\.\.(\d+)\})");
  // Names of networks may have a space: NET/AWS Libfabric/0/GDRDMA.
  static const Pattern transport(R"( via ([A-Z][^ ]*(?: [A-Z][^ /]*/[^ ]*)?))");
  static const Pattern ring(R"(Channel \d+/\d+ : (\d+(?: \d+)*)\s*$)");
  NcclChoices choices;
  std::istringstream lines(log);
  size_t bytes = 0;  // before the line
  for (std::string line; std::getline(lines, line); bytes += line.size() + 1) {
    if (const auto found = sum.groups_in(line); !found.empty()) {
      if (bytes < earlier_bytes) continue;
      add_new(choices.sums, {.bytes = std::stoll(found[2]),
                             .algorithm = lower_case(found[3]),
                             .protocol = lower_case(found[4]),
                             .channels = std::stoll(found[6]) - std::stoll(found[5]) + 1,
                             .operation = lower_case(found[1])});
    } else if (const auto transports = transport.groups_in(line); !transports.empty()) {
      add_new(choices.transports, transports[1]);
    } else if (const auto rings = ring.groups_in(line); !rings.empty()) {
      add_new(choices.rings, rings[1]);
    }
  }
  if (choices.sums.empty()) return Unknown{"NCCL's log names no sum"};
  return choices;
}

void require_algorithm(const Maybe<NcclChoices>& choices, NcclAlgorithm asked) {
  if (asked == NcclAlgorithm::automatic) return;
  const std::string algorithm = to_string(asked);
  if (!choices) {
    throw std::runtime_error("--nccl-algorithm " + algorithm +
                             " cannot be checked: " + choices.reason);
  }
  for (const SumChoice& sum : choices->sums) {
    if (sum.algorithm == algorithm) continue;
    throw std::runtime_error("NCCL takes " + sum.algorithm + " for " + std::to_string(sum.bytes) +
                             " bytes in spite of --nccl-algorithm " + algorithm);
  }
}

}  // namespace nearmetal
