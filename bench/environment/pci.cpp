#include <cstdint>
#include <fstream>
#include <optional>
#include <regex>
#include <string>
#include <vector>

#include "bench/environment/gpu.h"

namespace nearmetal {
namespace {

namespace fs = std::filesystem;

// PCI Express base specification, "Extended Capabilities".
constexpr size_t extended_begin = 0x100, extended_end = 0x1000;
constexpr uint32_t acs_id = 0x000d, ats_id = 0x000f;
constexpr size_t control_offset = 6;  // of both
constexpr unsigned acs_request_redirect = 1 << 2, ats_enable = 1 << 15;

std::string configuration(const fs::path& device) {
  std::ifstream file(device / "config", std::ios::binary);
  std::string bytes(extended_end, '\0');
  file.read(bytes.data(), extended_end);
  bytes.resize(file.gcount());
  return bytes;
}

// Little-endian; bytes beyond the end are 0.
uint32_t number_at(const std::string& bytes, size_t offset, size_t size) {
  uint32_t number = 0;
  for (size_t i = 0; i < size && offset + i < bytes.size(); ++i) {
    number |= uint32_t{static_cast<unsigned char>(bytes[offset + i])} << (8 * i);
  }
  return number;
}

// The control register of an extended capability; none where the function has no such capability.
std::optional<unsigned> control_of(const std::string& configuration, uint32_t wanted_id) {
  size_t offset = extended_begin;
  // As many as there is room for: a list that leads back into itself must end.
  for (size_t looks = 0; looks < (extended_end - extended_begin) / 4; ++looks) {
    const uint32_t header = number_at(configuration, offset, 4);
    if ((header & 0xffff) == wanted_id) return number_at(configuration, offset + control_offset, 2);
    offset = header >> 20;
    if (offset < extended_begin) break;
  }
  return {};
}

Maybe<bool> control_has(const fs::path& device, uint32_t id, unsigned bit) {
  const std::string bytes = configuration(device);
  if (bytes.size() <= extended_begin) {
    return Unknown{"the extended configuration of " + device.filename().string() +
                   " is not readable (root may)"};
  }
  const auto control = control_of(bytes, id);
  return control && (*control & bit) != 0;
}

// Nearest first.
std::vector<fs::path> bridges_above(const fs::path& device) {
  static const std::regex address("[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\\.[0-7]");
  std::vector<fs::path> bridges;
  std::error_code ignored;
  for (fs::path folder = fs::canonical(device, ignored).parent_path();
       std::regex_match(folder.filename().string(), address); folder = folder.parent_path()) {
    bridges.push_back(folder);
  }
  return bridges;
}

}  // namespace

Maybe<bool> ats_enabled(const fs::path& device) { return control_has(device, ats_id, ats_enable); }

Maybe<bool> acs_redirects(const fs::path& device) {
  const std::vector<fs::path> bridges = bridges_above(device);
  if (bridges.empty()) return Unknown{"no bridge above it is seen from here"};
  for (const fs::path& bridge : bridges) {
    Maybe<bool> redirects = control_has(bridge, acs_id, acs_request_redirect);
    if (!redirects || *redirects) return redirects;
  }
  return false;
}

}  // namespace nearmetal
