// NCCL's choices, which it reports in its log alone.
#pragma once

#include <string>

#include "reports/document/types.h"

namespace nearmetal {

/// The choices in what NCCL 2.25 or later writes at the level INFO for the subsystems INIT, GRAPH
/// and TUNING (src/enqueue.cc, src/init.cc and src/transport of its sources). Each thing once, in
/// the order of the log; sums only of what follows its first `earlier_bytes`, and of `operations`,
/// as NCCL names them, separated by |. Unknown where there is none.
Maybe<NcclChoices> parse_nccl_log(const std::string& log, size_t earlier_bytes = 0,
                                  const std::string& operations = "AllReduce");

/// Throws std::runtime_error unless `choices` are known and every sum took `algorithm`; automatic:
/// any.
void require_algorithm(const Maybe<NcclChoices>& choices, NcclAlgorithm algorithm);

}  // namespace nearmetal
