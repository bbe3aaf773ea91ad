#include "comm/layout/vgpu_profile.h"

#include <regex>

namespace nearmetal {

std::optional<VgpuProfile> parse_vgpu_profile(const std::string& text) {
  // Boards have letters in front; parts of their names may follow a dash (RTX6000-Ada-48C).
  static const std::regex form(
      R"(([A-Za-z][A-Za-z0-9]*(?:-[A-Za-z][A-Za-z0-9]*)*)(?:-([1-9]))?-([1-9][0-9]{0,3})([ABCQ])(ME)?)");
  std::smatch parts;
  if (text.size() > 60 || !std::regex_match(text, parts, form)) return std::nullopt;
  VgpuProfile profile;
  profile.board = parts[1];
  if (parts[2].matched) profile.slices = std::stoll(parts[2]);
  profile.gigabytes = std::stoll(parts[3]);
  profile.series = parts[4].str().front();
  profile.media = parts[5].matched;
  return profile;
}

std::string vgpu_profile_in(const std::string& device_name) {
  const size_t space = device_name.rfind(' ');
  const std::string last = space == device_name.npos ? device_name : device_name.substr(space + 1);
  return parse_vgpu_profile(last) ? last : "";
}

std::string partition_text(const VgpuProfile& profile) {
  if (!profile.slices) return "time slices";
  return "MIG, " + std::to_string(*profile.slices) + (*profile.slices == 1 ? " slice" : " slices");
}

}  // namespace nearmetal
