// The facts that the ranks of a job must agree in, and must find, before they start.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "comm/layout/layout.h"
#include "reports/document/types.h"

namespace nearmetal {

/// One line on ranks, in order, that came up elsewhere than on their planned hosts, if any: those
/// of two hosts in one operating system, or those of one in two. `planned`: the host of each rank;
/// empty: none was planned.
std::optional<std::string> misplacement(std::span<const Report> ranks,
                                        const std::vector<std::string>& planned);

/// One line on what keeps these ranks, in order, from being one job, if any. Each is told
/// by its own report, of a rank that has not prepared anything yet.
std::optional<std::string> disagreement(std::span<const Report> ranks);

/// How many ranks, this one among them, run on the same CPUs of the same host.
int64_t ranks_on_same_cpus(std::span<const Report> ranks, int rank);

/// Throws NotAsExpected with the option and what is there instead. `gpu`: that of the rank, null on
/// CPUs.
void require_expected(const Expectation& expected, const Environment& environment, const Gpu* gpu);

}  // namespace nearmetal
