#include "bench/run/together.h"

#include <algorithm>

#include "bench/cli/exit_status.h"
#include "models/errors.h"

namespace nearmetal {

void together(World& world, const std::function<void()>& work) {
  if (world.size() == 1) return work();
  std::string failure;  // as an event, empty: none
  try {
    work();
  } catch (const std::exception& error) {
    failure = to_json_line(failure_event(error));
  }
  const std::vector<std::string> failures = world.all_gather(failure);
  const auto failed = std::find_if(failures.begin(), failures.end(),
                                   [](const std::string& line) { return !line.empty(); });
  if (failed == failures.end()) return;
  const Event first = event_from_json(*failed);
  std::string text = first.failure->text;
  const auto same = [&](const std::string& line) {
    return !line.empty() && event_from_json(line).failure->text == first.failure->text;
  };
  if (!std::all_of(failures.begin(), failures.end(), same)) {
    text = "rank " + std::to_string(failed - failures.begin()) + " (" + first.host + "): " + text;
  }
  throw JobFailure(text, static_cast<ExitCode>(first.failure->exit_code), world.rank() > 0,
                   first.failure->code);
}

Event failure_event(const std::exception& error) {
  Failure failure{{}, static_cast<int>(exit_code_of(error)), error.what()};
  if (const auto* job = dynamic_cast<const JobFailure*>(&error)) failure.code = job->code;
  if (const auto* own = dynamic_cast<const NotAsExpected*>(&error)) failure.code = own->code;
  Event event;
  event.kind = EventKind::failure;
  event.host = host_name();
  event.failure = failure;
  return event;
}

std::string failure_text(const World& world, const std::exception& error) {
  const bool alone = world.size() > 1 && dynamic_cast<const JobFailure*>(&error) == nullptr;
  return (alone ? "rank " + std::to_string(world.rank()) + " (" + host_name() + "): " : "") +
         error.what();
}

ExitCode as_rank(World& world, std::ostream& err, const std::function<ExitCode()>& work) {
  try {
    return work();
  } catch (const JobFailure& failure) {
    if (!failure.told) err << "nearmetal: " << failure.what() << std::endl;
    throw JobFailure(failure.what(), failure.exit_code, true, failure.code);
  } catch (const std::exception& error) {
    if (world.size() > 1) {
      err << "nearmetal: " << failure_text(world, error) << std::endl;
      world.abort(static_cast<int>(exit_code_of(error)));
    }
    throw;
  }
}

}  // namespace nearmetal
