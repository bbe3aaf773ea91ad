// Work that succeeds on every rank or fails on every rank.
#pragma once

#include <functional>
#include <ostream>

#include "comm/world.h"
#include "models/errors.h"
#include "reports/json/event_json.h"

namespace nearmetal {

/// Every rank does `work`, then all learn how the others fared. What the lowest rank that failed
/// threw comes out of it on all ranks as JobFailure; alone, as it is.
void together(World& world, const std::function<void()>& work);

/// What a rank tells of its failure.
Event failure_event(const std::exception& error);

/// What is told of an error, with the rank before it where one of several failed alone.
std::string failure_text(const World& world, const std::exception& error);

/// All that this rank does for a command. Where it fails on this rank alone the whole job ends, for
/// the others would wait for ever; the reason is told on `err` before any rank ends, as a launcher
/// kills the others once one has ended with a failure.
ExitCode as_rank(World& world, std::ostream& err, const std::function<ExitCode()>& work);

}  // namespace nearmetal
