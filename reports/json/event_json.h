// The messages of a job to the sweep that started it: one line of JSON for each event.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "base/errors.h"
#include "base/names.h"
#include "reports/document/types.h"

namespace nearmetal {

/// The sweep answers on the job's standard input with one of these lines; the end of the input asks
/// the job to stop, too.
inline constexpr const char* start_order = "start";  // and a space and a Unix time in seconds
inline constexpr const char* end_order = "end";      // after `measured`: enough
inline constexpr const char* stop_order = "stop";    // early

/// ready: warmed up, the load goes on until `start`; measured: the window is complete, the load
/// goes on until `end`; result: with the report, or what a neighbour did; failure: of a rank, after
/// which the job ends, with a report or without one.
enum class EventKind { progress, ready, measured, result, failure };
constexpr auto names_of(EventKind) {
  return std::array{"progress", "ready", "measured", "result", "failure"};
}

/// Where a rank is. load: the window is complete, and it trains on.
enum class RankPhase { set_up, warm_up, window, load, proof };
constexpr auto names_of(RankPhase) {
  return std::array{"set-up", "warm-up", "window", "load", "proof"};
}

struct Failure {
  std::optional<FailureCode> code;  // empty: none, or one of another version
  int exit_code = 0;
  std::string text;
};

struct Event {
  std::optional<EventKind> kind;  // empty: one that another version tells of
  int64_t rank = 0;  // the sender; every rank sends progress and failure, rank 0 everything else
  std::string host;  // of that rank
  std::optional<std::string> stage;      // of that rank, as stage_text() names it
  std::optional<double> unix_seconds{};  // by its clock, when it was sent
  std::optional<RankPhase> phase;        // of progress; empty: one of another version
  int64_t steps = 0;                     // taken
  SampleUnit sample = SampleUnit::image;
  double samples_per_second = 0;  // in the window so far; 0: none
  std::optional<Report> report;
  std::optional<Neighbour> neighbour;  // of a process that trains nothing, in place of a report
  std::optional<Failure> failure;
};

/// The line without its end.
std::string to_json_line(const Event& event);
/// Throws InvalidReport.
Event event_from_json(const std::string& line);

}  // namespace nearmetal
