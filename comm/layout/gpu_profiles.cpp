#include "comm/layout/gpu_profiles.h"

#include <algorithm>
#include <array>

#include "base/pattern.h"

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
constexpr std::array a100_40 = {
    MigProfile{"1g.5gb", 7, 1, 1},  MigProfile{"1g.5gb+me", 1, 1, 1},
    MigProfile{"1g.10gb", 4, 1, 2}, MigProfile{"2g.10gb", 3, 2, 2},
    MigProfile{"3g.20gb", 2, 3, 4}, MigProfile{"4g.20gb", 1, 4, 4},
    MigProfile{"7g.40gb", 1, 7, 8},
};
constexpr std::array with_80_gb = {
    // A100 and H100
    MigProfile{"1g.10gb", 7, 1, 1}, MigProfile{"1g.10gb+me", 1, 1, 1},
    MigProfile{"1g.20gb", 4, 1, 2}, MigProfile{"2g.20gb", 3, 2, 2},
    MigProfile{"3g.40gb", 2, 3, 4}, MigProfile{"4g.40gb", 1, 4, 4},
    MigProfile{"7g.80gb", 1, 7, 8},
};
constexpr std::array h100_94 = {
    MigProfile{"1g.12gb", 7, 1, 1}, MigProfile{"1g.12gb+me", 1, 1, 1},
    MigProfile{"1g.24gb", 4, 1, 2}, MigProfile{"2g.24gb", 3, 2, 2},
    MigProfile{"3g.47gb", 2, 3, 4}, MigProfile{"4g.47gb", 1, 4, 4},
    MigProfile{"7g.94gb", 1, 7, 8},
};
constexpr std::array h100_96 = {
    MigProfile{"1g.12gb", 7, 1, 1}, MigProfile{"1g.12gb+me", 1, 1, 1},
    MigProfile{"1g.24gb", 4, 1, 2}, MigProfile{"2g.24gb", 3, 2, 2},
    MigProfile{"3g.48gb", 2, 3, 4}, MigProfile{"4g.48gb", 1, 4, 4},
    MigProfile{"7g.96gb", 1, 7, 8},
};
constexpr std::array h200 = {
    MigProfile{"1g.18gb", 7, 1, 1},  MigProfile{"1g.18gb+me", 1, 1, 1},
    MigProfile{"1g.35gb", 4, 1, 2},  MigProfile{"2g.35gb", 3, 2, 2},
    MigProfile{"3g.71gb", 2, 3, 4},  MigProfile{"4g.71gb", 1, 4, 4},
    MigProfile{"7g.141gb", 1, 7, 8},
};

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

constexpr const char* mig_mark = " MIG ";

}  // namespace

bool is_mig_profile(const std::string& text) {
  // Compute slices of a compute instance, if not all of the GPU instance; slices and memory of the
  // GPU instance; its additions.
  static const Pattern form(R"(([1-7]c\.)?[1-7]g\.[1-9][0-9]{0,3}gb([+-](me|me\.all|gfx))?)");
  return text.size() < 40 && form.matches(text);
}

bool is_mig_uuid(const std::string& text) {
  static const Pattern form("MIG-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}");
  return text.size() < 80 && form.matches(text);
}

std::string mig_profile_in(const std::string& device_name) {
  const size_t mark = device_name.rfind(mig_mark);
  if (mark == device_name.npos) return "";
  return device_name.substr(mark + std::string(mig_mark).size());
}

std::span<const MigProfile> mig_profiles_of(const std::string& gpu_name) {
  for (const Board& board : boards) {
    if (Pattern(board.name).is_in(gpu_name)) return board.profiles;
  }
  return {};
}

std::string no_such_profile(const std::string& profile, const std::string& gpu_name) {
  const auto known = mig_profiles_of(gpu_name);
  // Instances of several compute instances, and later additions, are not in the tables.
  const bool plain = profile.find('c') == profile.npos && profile.find('-') == profile.npos &&
                     (profile.find('+') == profile.npos || profile.ends_with("+me"));
  if (known.empty() || !plain) return "";
  std::string names;
  for (const MigProfile& one : known) {
    if (profile == one.name) return "";
    names += (names.empty() ? "" : ", ") + std::string(one.name);
  }
  return "no profile " + profile + " on an " + gpu_name + "; it has " + names;
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

std::string mig_commands(int64_t gpu, bool is_on, const std::vector<std::string>& profiles) {
  const std::string index = std::to_string(gpu);
  std::string text = is_on ? "" : "nvidia-smi -i " + index + " -mig 1";
  if (profiles.empty()) return text;
  text += (text.empty() ? "" : ", then ") + ("nvidia-smi mig -i " + index + " -cgi ");
  for (size_t i = 0; i < profiles.size(); ++i) text += (i > 0 ? "," : "") + profiles[i];
  return text + " -C";
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

std::string vgpu_profile_in(const std::string& device_name) {
  const size_t space = device_name.rfind(' ');
  const std::string last = space == device_name.npos ? device_name : device_name.substr(space + 1);
  return parse_vgpu_profile(last) ? last : "";
}

}  // namespace nearmetal
