#include <algorithm>
#include <array>

#include "reports/compare/run_set.h"
#include "reports/files/sha256.h"

namespace nearmetal {

std::vector<KeyDifference> key_differences(const std::vector<KeyField>& base,
                                           const std::vector<KeyField>& other) {
  const auto value_in = [](const std::vector<KeyField>& key, const std::string& name) {
    const auto found = std::ranges::find(key, name, &KeyField::name);
    return found == key.end() ? std::string("none") : found->value;
  };
  std::vector<KeyDifference> differences;
  for (const KeyField& field : base) {
    const std::string value = value_in(other, field.name);
    const bool unknown = field.value.empty() || value.empty() || value == "none";
    if (value != field.value && !(field.may_be_unknown && unknown)) {
      differences.push_back({field.name, field.severity, field.value, value});
    }
  }
  for (const KeyField& field : other) {
    const bool is_new =
        std::ranges::none_of(base, [&](const KeyField& known) { return known.name == field.name; });
    if (is_new && !field.may_be_unknown)
      differences.push_back({field.name, field.severity, "none", field.value});
  }
  std::ranges::stable_sort(differences, {}, &KeyDifference::severity);
  return differences;
}

bool KeyDifference::can_be_allowed() const {
  if (severity != Severity::kind) return true;
  const auto ran = [](const std::string& kind) {
    return kind == to_string(Kind::measured) || kind == to_string(Kind::emulated);
  };
  return ran(base) && ran(other);
}

bool KeyDifference::is_treatment(ComparisonForm form) const {
  if (form == ComparisonForm::sets) return false;
  constexpr std::array of_machines = {"cpu_model", "cpu_id", "logical_cpus", "memory"};
  return name == "ranks_per_instance" ||
         (form == ComparisonForm::vm && std::ranges::find(of_machines, name) != of_machines.end());
}

bool covers(const std::string& allowed, const std::string& field) {
  return allowed == field || allowed == field.substr(0, field.find('.'));
}

bool follows_batch(const std::string& field) {
  return field == "learning_rate" || covers("loss_scale", field);
}

void allow(std::vector<KeyDifference>& differences, ComparisonForm form,
           const std::vector<std::string>& allow_differ) {
  const auto named = [&](const std::string& field) {
    return std::ranges::any_of(allow_differ,
                               [&](const std::string& allowed) { return covers(allowed, field); });
  };
  const bool other_batch =
      named("batch") && std::ranges::count(differences, "batch", &KeyDifference::name) > 0;
  for (KeyDifference& difference : differences) {
    const bool covered = named(difference.name) || (other_batch && follows_batch(difference.name));
    difference.allowed = difference.can_be_allowed() && (difference.is_treatment(form) || covered);
  }
}

std::string context_sha256(const std::vector<KeyField>& key) {
  std::string text;
  for (const KeyField& field : key) {
    if (field.severity == Severity::layout || field.may_be_unknown) continue;
    text += field.name + '\0' + field.value + '\0';
  }
  return sha256(text);
}

}  // namespace nearmetal
