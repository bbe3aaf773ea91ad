// Feeds any bytes to the reader of mig-parted's files: either std::invalid_argument with a short
// line, or configurations that can be compared with GPUs. Runs under libFuzzer; the unit tests feed
// it its corpus.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <stdexcept>
#include <string>
#include <string_view>

#include "comm/layout/mig_config.h"

namespace {

void require(bool holds, const char* what) {
  if (holds) return;
  std::cerr << "does not hold: " << what << '\n';
  std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace nearmetal;
  try {
    const auto configs =
        mig_configs_from_yaml(std::string_view(reinterpret_cast<const char*>(data), size));
    require(!configs.empty(), "a file has a configuration");
    Gpu gpu;
    gpu.mig = true;
    for (const auto& [label, entries] : configs) {
      require(mig_differences({"file", label, entries}, {gpu}).size() <= 1, "one line for one GPU");
    }
  } catch (const std::invalid_argument& error) {
    const std::string reason = error.what();
    require(reason.size() < size + 4096, "the reason is short");
    require(reason.find('\n') == reason.npos, "the reason is one line");
  }
  return 0;
}
