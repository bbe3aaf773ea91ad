#include "comm/layout/gpu_profiles.h"

#include <algorithm>
#include <array>

#include "base/pattern.h"
#include "base/text.h"

namespace nearmetal {
namespace {

// Source: NVIDIA MIG User Guide, chapters "Supported GPUs" and "Supported MIG Profiles"
// (docs.nvidia.com/datacenter/tesla/mig-user-guide), and the default configurations of mig-parted
// (github.com/NVIDIA/mig-parted). A profile with media extensions (+me) is there once. 1g with
// twice the memory takes 2 of the 8 memory slices, 3g and 4g take 4, 7g all.
constexpr std::array a30 = {
    MigProfile{"1g.6gb", 4, 1, 1},  MigProfile{"1g.6gb+me", 1, 1, 1},
    MigProfile{"2g.12gb", 2, 2, 2}, MigProfile{"2g.12gb+me", 1, 2, 2},
    MigProfile{"4g.24gb", 1, 4, 4},
};

// The profiles of boards with 7 slices for computing and 8 for memory differ in their names alone.
constexpr auto of_seven_slices(const std::array<const char*, 7>& names) {
  return std::array{MigProfile{names[0], 7, 1, 1}, MigProfile{names[1], 1, 1, 1},
                    MigProfile{names[2], 4, 1, 2}, MigProfile{names[3], 3, 2, 2},
                    MigProfile{names[4], 2, 3, 4}, MigProfile{names[5], 1, 4, 4},
                    MigProfile{names[6], 1, 7, 8}};
}
constexpr auto a100_40 =
    of_seven_slices({"1g.5gb", "1g.5gb+me", "1g.10gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"});
constexpr auto with_80_gb = of_seven_slices({"1g.10gb", "1g.10gb+me", "1g.20gb", "2g.20gb",
                                             "3g.40gb", "4g.40gb", "7g.80gb"});  // A100 and H100
constexpr auto h100_94 = of_seven_slices(
    {"1g.12gb", "1g.12gb+me", "1g.24gb", "2g.24gb", "3g.47gb", "4g.47gb", "7g.94gb"});
constexpr auto h100_96 = of_seven_slices(
    {"1g.12gb", "1g.12gb+me", "1g.24gb", "2g.24gb", "3g.48gb", "4g.48gb", "7g.96gb"});
constexpr auto h200 = of_seven_slices(
    {"1g.18gb", "1g.18gb+me", "1g.35gb", "2g.35gb", "3g.71gb", "4g.71gb", "7g.141gb"});

// Matched in this order against names such as "NVIDIA A100-SXM4-40GB", "NVIDIA A100 80GB PCIe",
// "NVIDIA H100 NVL", "NVIDIA H100 80GB HBM3", "NVIDIA GH200 480GB" (of which the GPU has 96 GB; its
// later kind with 144 GB is not known here) and "NVIDIA H200 NVL".
struct Board {
  const char* name;  // regular expression
  std::span<const MigProfile> profiles;
};
const std::array<Board, 9> boards = {{
    {R"(\bA30\b)", a30},
    {R"(\bA100\b.*\b40GB\b)", a100_40},
    {R"(\bA100\b.*\b80GB\b)", with_80_gb},
    {R"(\bH100 NVL\b|\bH100\b.*\b94GB\b)", h100_94},
    {R"(\bGH200 480GB\b|\bH100\b.*\b96GB\b)", h100_96},
    {R"(\bH100\b.*\b64GB\b)", {}},  // of one maker's systems, with profiles of its own
    {R"(\bH100 PCIe\b|\bH100\b.*\b80GB\b)", with_80_gb},
    {R"(\bGH200\b)", {}},
    {R"(\bH200\b)", h200},
}};

}  // namespace

bool is_mig_profile(const std::string& text) {
  // Compute slices of a compute instance, if not all of the GPU instance; slices and memory of the
  // GPU instance; its additions.
  static const Pattern form(
      R"(([1-7]c\.)?[1-7]g\.[1-9][0-9]{0,3}gb([+-](me|me\.all|gfx)(,(me|me\.all|gfx))*)?)");
  return text.size() < 40 && form.matches(text);
}

bool is_mig_uuid(const std::string& text) {
  static const Pattern form("MIG-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}");
  return text.size() < 80 && form.matches(text);
}

std::optional<std::string> mig_profile_in(const std::string& device_name) {
  constexpr std::string_view mark = " MIG ";
  const size_t at = device_name.rfind(mark);
  if (at == device_name.npos) return std::nullopt;
  return device_name.substr(at + mark.size());
}

std::span<const MigProfile> mig_profiles_of(const std::string& gpu_name) {
  for (const Board& board : boards) {
    if (Pattern(board.name).is_in(gpu_name)) return board.profiles;
  }
  return {};
}

std::optional<std::string> no_such_profile(const std::string& profile,
                                           const std::string& gpu_name) {
  const auto known = mig_profiles_of(gpu_name);
  // Instances of several compute instances, and later additions, are not in the tables.
  const bool plain = profile.find('c') == profile.npos && profile.find('-') == profile.npos &&
                     (profile.find('+') == profile.npos || profile.ends_with("+me"));
  if (known.empty() || !plain) return std::nullopt;
  std::vector<std::string> names;
  for (const MigProfile& one : known) names.emplace_back(one.name);
  if (std::ranges::find(names, profile) != names.end()) return std::nullopt;
  return "no profile " + profile + " on an " + gpu_name + "; it has " + joined(names);
}

const MigProfile* largest_equal_profile(const std::string& gpu_name, int64_t count) {
  const MigProfile* largest = nullptr;
  for (const MigProfile& one : mig_profiles_of(gpu_name)) {
    const bool larger = largest == nullptr || one.compute_slices > largest->compute_slices ||
                        one.memory_slices > largest->memory_slices;
    if (one.most >= count && larger) largest = &one;
  }
  return largest;
}

std::optional<VgpuProfile> parse_vgpu_profile(const std::string& text) {
  // Boards have letters in front; parts of their names may follow a dash (RTX6000-Ada-48C).
  static const Pattern form(
      R"(([A-Za-z][A-Za-z0-9]*(?:-[A-Za-z][A-Za-z0-9]*)*)(?:-([1-9]))?-[1-9][0-9]{0,3}[ABCQ](?:ME)?)");
  if (text.size() > 60) return std::nullopt;
  const std::vector<std::string> parts = form.groups_of(text);
  if (parts.empty()) return std::nullopt;
  VgpuProfile profile{parts[1]};
  if (!parts[2].empty()) profile.slices = std::stoll(parts[2]);
  return profile;
}

std::optional<std::string> vgpu_profile_in(const std::string& device_name) {
  const std::string last = device_name.substr(device_name.rfind(' ') + 1);  // all, without a space
  return parse_vgpu_profile(last) ? std::optional(last) : std::nullopt;
}

}  // namespace nearmetal
