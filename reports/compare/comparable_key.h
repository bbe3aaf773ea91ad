// The comparable key of a run: what must agree between runs that are compared.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "reports/document/types.h"

namespace nearmetal {

/// The meaning of a difference, the worst first: numbers of another nature, another computation,
/// other placement, other hardware, other libraries.
enum class Severity { kind, work, layout, hardware, software };
constexpr auto names_of(Severity) {
  return std::array{"kind", "work", "layout", "hardware", "software"};
}

struct KeyField {
  std::string name;
  std::string value;
  Severity severity = Severity::work;
  /// Earlier reports do not tell it: that is no difference, and it is in no hash.
  bool may_be_unknown = false;

  bool operator==(const KeyField&) const = default;
};

/// The value of a field of a key, or `missing` where it has none of that name.
std::string value_in(const std::vector<KeyField>& key, const std::string& name,
                     const std::string& missing = "");

/// A key that runs may share: thousands of runs mostly have the same one.
class SharedKey {
 public:
  using value_type = KeyField;
  using const_iterator = std::vector<KeyField>::const_iterator;

  SharedKey(std::vector<KeyField> key = {})
      : key_(std::make_shared<const std::vector<KeyField>>(std::move(key))) {}

  operator const std::vector<KeyField>&() const { return *key_; }
  const_iterator begin() const { return key_->begin(); }
  const_iterator end() const { return key_->end(); }
  bool empty() const { return key_->empty(); }

  bool operator==(const SharedKey& other) const {
    return key_ == other.key_ || *key_ == *other.key_;
  }

 private:
  std::shared_ptr<const std::vector<KeyField>> key_;
};

/// The comparable key of one run of a report: kind, settings that decide what is computed (of jobs
/// that differ in them those of each: "resnet50 + resnet18"), what sums the gradients of several
/// ranks and in which type, world size, ranks per operating-system instance, the GPU's chip, or the
/// CPU's model and identity, CPUs, memory and threads, and versions of libraries; neither host,
/// driver, kernel, hypervisor nor the product name of a GPU.
std::vector<KeyField> comparable_key(const Report& report, const Arm& arm, const Run& run);

/// The fields that may be allowed to differ; of kinds only measured and emulated. The fields of
/// parts, such as loss_scale.initial, stand for themselves and by what they are parts of; libraries
/// by that alone, as others come with other versions.
std::vector<std::string> fields_that_may_differ();

/// The chip of a GPU without what its product, form factor, memory, MIG or vGPU profile adds:
/// "NVIDIA A100-SXM4-80GB", "GRID A100-40C" and "NVIDIA A100 80GB PCIe MIG 1g.10gb" are all A100.
std::string gpu_chip(const std::string& product);

/// The sides as they are given: any two sets of runs, bare metal and a VM or a container, or a
/// reference of several machines and one machine.
enum class ComparisonForm { sets, vm, container, reference };
constexpr auto names_of(ComparisonForm) {
  return std::array{"sets", "vm", "container", "reference"};
}

struct KeyDifference {
  std::string name;
  Severity severity = Severity::work;
  std::string base;
  std::string other;
  std::string source{};  // of a comparison: of the run that differs from the first of the base
  bool allowed = false;  // by the options of the comparison

  /// Whether it is what such a comparison looks into: how ranks are split among instances, and the
  /// CPU as a guest sees it. A container sees that of its host.
  bool is_treatment(ComparisonForm form) const;
  /// Whether --allow-differ can cover it: of kinds only those that ran, measured and emulated.
  bool can_be_allowed() const;
  bool operator==(const KeyDifference&) const = default;
};

/// Whether this field is a setting of training whose default follows from the batch.
bool follows_batch(const std::string& field);

/// Fields that differ or are on one side only, the most severe first.
std::vector<KeyDifference> key_differences(const std::vector<KeyField>& base,
                                           const std::vector<KeyField>& other);

/// Whether an entry of --allow-differ covers this field: its name, or the part before a dot.
bool covers(const std::string& allowed, const std::string& field);

/// Marks which differences of one run are allowed: those that the form of the comparison looks
/// into, and those that --allow-differ covers, with a batch what follows from it.
void allow(std::vector<KeyDifference>& differences, ComparisonForm form,
           const std::vector<std::string>& allow_differ);

/// SHA-256 of the key without its layout: what one baseline holds may be several layouts.
std::string context_sha256(const std::vector<KeyField>& key);

}  // namespace nearmetal
