// Feeds texts to the reader of mig-parted's files: either std::invalid_argument with a short line,
// or configurations that can be compared with GPUs. Each input is taken as such a text, and as the
// choices of a grammar that makes one, with mistakes now and then. Runs under libFuzzer; the unit
// tests feed it its corpus.
#include <array>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "comm/layout/mig_config.h"
#include "tests/fuzz/choices.h"

namespace nearmetal {

Reaches reaches;

namespace mig_config_fuzz {
namespace {

constexpr std::array profiles = {"1g.18gb", "2g.35gb", "1g.5gb+me", "7g.80gb", "1c.3g.20gb"};
constexpr std::array ids = {"0x233510DE", "0x20B010de", "0x2335", "233510DE"};
constexpr std::array labels = {"all-disabled", "all-1g.18gb", "x", "\"1\"", "~", "- "};

class MigFile {
 public:
  explicit MigFile(Choices& choices) : choices_(choices) {}

  std::string text() {
    line("version: " + value("v1"));
    line(key("mig-configs") + ":");
    for (size_t label = 0; label <= choices_.below(4); ++label) {
      line("  " + key(choices_.one_of(labels) + std::to_string(label)) + ":");
      for (size_t entry = 0; entry <= choices_.below(3); ++entry) add_entry();
    }
    return std::move(text_);
  }

 private:
  void add_entry() {
    const bool on = choices_.below(2) == 0;
    line("    - " + key("devices") + ": " + value(devices()));
    if (choices_.below(4) == 3) line("      " + key("device-filter") + ": " + value(filter()));
    if (!choices_.mistake())
      line("      " + key("mig-enabled") + ": " + value(on ? "true" : "false"));
    if (on != choices_.mistake()) add_counts();
  }
  void add_counts() {
    const size_t count = choices_.below(4);
    line("      " + key("mig-devices") + ":" + (count == 0 ? " {}" : ""));
    for (size_t i = 0; i < count; ++i) {
      line("        " + key(std::string(profiles[i])) + ": " + value(number(8)));
    }
  }

  std::string number(size_t most) { return std::to_string(1 + choices_.below(most)); }
  std::string devices() {
    if (choices_.below(2) == 0) return "all";
    return "[" + std::to_string(choices_.below(4)) + ", " + number(4) + "]";
  }
  std::string filter() {
    const std::string id = choices_.one_of(std::span(ids).first(choices_.mistake() ? 4 : 2));
    return choices_.below(2) == 0 ? "\"" + id + "\"" : "[\"" + id + "\"]";
  }
  std::string value(const std::string& right) { return changed(right, "null"); }
  std::string key(const std::string& right) { return changed(right, "devices"); }
  std::string changed(const std::string& right, const char* other) {
    if (!choices_.mistake()) return right;
    return choices_.below(2) == 0 ? choices_.text() : other;
  }
  void line(const std::string& content) { text_ += content + (choices_.mistake() ? "" : "\n"); }

  Choices& choices_;
  std::string text_;
};

std::vector<Gpu> gpus_of(Choices& choices) {
  std::vector<Gpu> gpus(choices.below(4));
  for (Gpu& gpu : gpus) {
    if (choices.below(8) != 7) gpu.mig = choices.below(2) == 0;
    if (choices.below(2) == 0) gpu.device_id = std::string(choices.one_of(ids));
    gpu.mig_instances.resize(choices.below(8));
    for (MigInstance& instance : gpu.mig_instances) {
      if (!choices.mistake()) instance.profile = std::string(choices.one_of(profiles));
    }
  }
  return gpus;
}

void read(std::string_view text, const std::vector<Gpu>& gpus, Reach& reach) {
  ++reach.inputs;
  try {
    const auto configs = mig_configs_from_yaml(text);
    require(!configs.empty(), "a file has a configuration");
    for (const auto& [label, entries] : configs) {
      const size_t lines = mig_differences({"file", label, entries}, gpus).size();
      require(lines <= gpus.size(), "one line for one GPU");
    }
    ++reach.past_first;
    ++reach.taken;
  } catch (const std::invalid_argument& error) {
    const std::string_view reason = error.what();
    require_reason(error.what(), text.size());
    const bool names_a_line = reason.starts_with("line ");
    reach.past_first += names_a_line && !reason.starts_with("line 1:");
  }
}

}  // namespace
}  // namespace mig_config_fuzz
}  // namespace nearmetal

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace nearmetal;
  using namespace mig_config_fuzz;
  Choices choices(data, size);
  const std::vector<Gpu> gpus = gpus_of(choices);
  read(std::string_view(reinterpret_cast<const char*>(data), size), gpus, reaches.of_bytes);
  read(MigFile(choices).text(), gpus, reaches.of_grammar);
  return 0;
}
