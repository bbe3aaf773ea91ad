// Whether two runs may be compared: what they must have in common.
#pragma once

#include <string>
#include <vector>

#include "reports/document/types.h"

namespace nearmetal {

/// What a difference means, the worst first: numbers of another nature, another computation, other
/// placement, other hardware, other libraries.
enum class Severity { kind, work, layout, hardware, software };
constexpr auto names_of(Severity) {
  return std::array{"kind", "work", "layout", "hardware", "software"};
}

struct KeyField {
  std::string name;
  std::string value;
  Severity severity = Severity::work;

  bool operator==(const KeyField&) const = default;
};

/// The comparable key of one run of a report: kind, settings that decide what is computed, what
/// sums the gradients of several ranks and in which type, world size, ranks per operating-system
/// instance, the GPU's chip or the CPU's model and threads, and versions of libraries. Neither
/// host, driver, kernel, hypervisor nor the product name of a GPU are part of it.
std::vector<KeyField> comparable_key(const Report& report, const Arm& arm, const Run& run);

/// The fields that may be allowed to differ: all but the kind. Those of parts, such as
/// loss_scale.initial, stand for themselves and by what they are parts of; libraries by that alone,
/// as others come with other versions.
std::vector<std::string> fields_that_may_differ();

/// The chip of a GPU without what its product, form factor, memory, MIG or vGPU profile adds:
/// "NVIDIA A100-SXM4-80GB", "GRID A100-40C" and "NVIDIA A100 80GB PCIe MIG 1g.10gb" are all A100.
std::string gpu_chip(const std::string& product);

/// The board of a GPU: "NVIDIA H200" of its MIG device "NVIDIA H200 MIG 1g.18gb", too.
std::string gpu_board(const std::string& product);

struct KeyDifference {
  std::string name;
  Severity severity = Severity::work;
  std::string base;
  std::string other;

  /// Whether it is what a comparison of a VM with bare metal looks into: how ranks are split among
  /// instances, and the CPU as a guest sees it.
  bool is_treatment() const;
  bool operator==(const KeyDifference&) const = default;
};

/// Fields that differ or are on one side only, the most severe first.
std::vector<KeyDifference> key_differences(const std::vector<KeyField>& base,
                                           const std::vector<KeyField>& other);

/// Whether an entry of --allow-differ covers this field: its name, or the part before a dot.
bool covers(const std::string& allowed, const std::string& field);

/// SHA-256 of the key without its layout: what one baseline holds may be several layouts.
std::string context_sha256(const std::vector<KeyField>& key);

}  // namespace nearmetal
