#include "bench/run/together.h"

#include <algorithm>

#include "bench/cli/exit_status.h"
#include "models/errors.h"

namespace nearmetal {

void together(World& world, const std::function<void()>& work) {
  if (world.size() == 1) return work();
  std::string failure;  // "code host\0text", empty: none
  try {
    work();
  } catch (const std::exception& error) {
    failure = std::to_string(static_cast<int>(exit_code_of(error))) + " " + host_name() + '\0' +
              error.what();
  }
  const std::vector<std::string> failures = world.all_gather(failure);
  const auto failed = std::find_if(failures.begin(), failures.end(),
                                   [](const std::string& text) { return !text.empty(); });
  if (failed == failures.end()) return;
  const size_t space = failed->find(' '), zero = failed->find('\0');
  std::string text = failed->substr(zero + 1);
  const auto same = [&](const std::string& other) { return other.ends_with('\0' + text); };
  if (!std::all_of(failures.begin(), failures.end(), same)) {
    text = "rank " + std::to_string(failed - failures.begin()) + " (" +
           failed->substr(space + 1, zero - space - 1) + "): " + text;
  }
  throw JobFailure(text, static_cast<ExitCode>(std::stoi(*failed)), world.rank() > 0);
}

ExitCode as_rank(World& world, std::ostream& err, const std::function<ExitCode()>& work) {
  try {
    return work();
  } catch (const JobFailure& failure) {
    if (!failure.told) err << "nearmetal: " << failure.what() << std::endl;
    throw JobFailure(failure.what(), failure.exit_code, true);
  } catch (const std::exception& error) {
    if (world.size() > 1) {
      err << "nearmetal: rank " << world.rank() << " (" << host_name() << "): " << error.what()
          << std::endl;
      world.abort(static_cast<int>(exit_code_of(error)));
    }
    throw;
  }
}

}  // namespace nearmetal
