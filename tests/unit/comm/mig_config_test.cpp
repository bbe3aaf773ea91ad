#include "comm/layout/mig_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>

#include "tests/support/random_inputs.h"
#include "tests/support/refusal.h"
#include "tests/support/temporary_folder.h"

namespace nearmetal {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr const char* two_kinds = R"(version: v1
mig-configs:
  all-disabled:
    - devices: all
      mig-enabled: false
  mixed:  # as in the examples of mig-parted
    - device-filter: ["0x233510de", "0x233010DE"]
      devices: all
      mig-enabled: true
      mig-devices:
        "1g.18gb": 2
        3g.71gb: 1
    - device-filter: "0x20B010DE"
      devices: [0, 1]
      mig-enabled: false
)";

// A GPU of the kind 0x233510DE, with MIG devices of these profiles; `on`: MIG by NVML's report.
Gpu h200(const std::vector<std::string>& profiles, const Maybe<bool>& on = true) {
  Gpu gpu;
  gpu.name = "NVIDIA H200";
  gpu.device_id = std::string("0x233510DE");
  gpu.mig = on;
  for (const std::string& profile : profiles) gpu.mig_instances.emplace_back().profile = profile;
  return gpu;
}

// An entry with these members.
std::string refusal_of_entry(const std::string& members) {
  return refusal_of(
      [&] { mig_configs_from_yaml("version: v1\nmig-configs: {a: [{" + members + "}]}"); });
}

TEST(MigConfig, IsReadAsMigPartedWritesIt) {
  const auto configs = mig_configs_from_yaml(two_kinds);
  ASSERT_EQ(configs.size(), 2);
  const std::vector<MigConfigEntry>& mixed = configs.at("mixed");
  EXPECT_EQ(mixed.at(0),
            (MigConfigEntry{
                {"0x233510de", "0x233010DE"}, true, {}, true, {{"1g.18gb", 2}, {"3g.71gb", 1}}}));
  EXPECT_EQ(mixed.at(1), (MigConfigEntry{{"0x20B010DE"}, false, {0, 1}, false, {}}));
}

TEST(MigConfig, NamesEachGpuThatDiffers) {
  const MigConfig mixed{"f.yaml", "mixed", mig_configs_from_yaml(two_kinds).at("mixed")};
  EXPECT_THAT(mig_differences(mixed, {h200({"3g.71gb", "1g.18gb", "1g.18gb"})}), IsEmpty());
  EXPECT_THAT(mig_differences(mixed, {h200({"1g.18gb"}), h200({}, false)}),
              ElementsAre("GPU 0 (NVIDIA H200) has 1 x 1g.18gb, not 2 x 1g.18gb, 1 x 3g.71gb",
                          "GPU 1 (NVIDIA H200) has MIG off, not on with 2 x 1g.18gb, 1 x 3g.71gb"));
  Gpu other = h200({}, false);
  other.device_id = std::string("0x20B010DE");
  EXPECT_THAT(mig_differences(mixed, {other}), IsEmpty());
  EXPECT_THAT(mig_differences(mixed, {other, other, other}),
              ElementsAre(HasSubstr("GPU 2 (NVIDIA H200) is in no entry of 'mixed'")));
  EXPECT_EQ(apply_command(mixed), "nvidia-mig-parted apply -f f.yaml -c mixed");
}

TEST(MigConfig, WithoutMigAGpuIsAsOneWithMigOff) {
  const MigConfig off{"f", "all-disabled", mig_configs_from_yaml(two_kinds).at("all-disabled")};
  EXPECT_THAT(mig_differences(off, {h200({}, Unknown{"Not Supported"})}), IsEmpty());
  EXPECT_THAT(mig_differences(off, {h200({})}),
              ElementsAre("GPU 0 (NVIDIA H200) has MIG on, not off"));
}

TEST(MigConfig, OfEntriesThatMatchTheLastCounts) {
  const auto configs = mig_configs_from_yaml(
      "version: v1\nmig-configs:\n  a:\n  - {devices: all, mig-enabled: false}\n"
      "  - {devices: [1], mig-enabled: true, mig-devices: {}}\n");
  const MigConfig config{"f", "a", configs.at("a")};
  EXPECT_THAT(mig_differences(config, {h200({}, false), h200({})}), IsEmpty());
}

TEST(MigConfig, WrongValuesAreRefusedWithTheirLine) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"devices: most, mig-enabled: false", "devices must be all, or a list"},
      {"devices: [-1], mig-enabled: false", "an index of a GPU must be a number"},
      {"devices: ['1'], mig-enabled: false", "an index of a GPU must be a number"},
      {"devices: all", "mig-enabled must be there"},
      {"mig-enabled: false", "devices must be there"},
      {"devices: all, mig-enabled: yes", "mig-enabled must be true or false"},
      {"devices: all, mig-enabled: 'true'", "mig-enabled must be true or false"},
      {"devices: all, mig-enabled: true", "mig-devices must be there"},
      {"devices: all, mig-enabled: false, mig-devices: {1g.5gb: 1}", "mig-enabled is false"},
      {"devices: all, mig-enabled: true, mig-devices: {1g.5gb: -1}", "1g.5gb must be a number"},
      {"devices: all, mig-enabled: true, mig-devices: {1g.5gb: 0}", "are 0"},
      {"devices: all, mig-enabled: true, mig-devices: {huge: 1}", "'huge' is no MIG profile"},
      {"devices: all, mig-enabled: true, mig-devices: [1g.5gb]", "mig-devices must be profiles"},
      {"device-filter: 0x2335, devices: all, mig-enabled: false", "device-filter must be IDs"},
      {"device-filter: {a: b}, devices: all, mig-enabled: false", "device-filter must be IDs"},
      {"devices: all, mig-enabled: false, more: 1",
       "'more' is not known; there are: device-filter"},
      {"devices: all, devices: all, mig-enabled: false", "'devices' is there twice"},
  };
  for (const auto& [members, expected] : cases) {
    EXPECT_THAT(refusal_of_entry(members),
                testing::AllOf(testing::StartsWith("line 2: "), HasSubstr(expected)))
        << members;
  }
}

// A filter with the ID of the board behind that of the device: DeviceID.Matches() in
// pkg/types/device.go of mig-parted.
TEST(MigConfig, AFilterMayNameTheBoard) {
  const auto configs = mig_configs_from_yaml(
      "version: v1\nmig-configs:\n  a:\n"
      "  - {device-filter: ['0x233510DE:0x18be10de'], devices: all, mig-enabled: false}\n");
  const MigConfig config{"f", "a", configs.at("a")};
  Gpu gpu = h200({}, false);
  EXPECT_THAT(mig_differences(config, {gpu}), ElementsAre(HasSubstr("is in no entry")))
      << "its board is not known";
  gpu.subsystem_id = std::string("0x18BE10DE");
  EXPECT_THAT(mig_differences(config, {gpu}), IsEmpty());
  gpu.subsystem_id = std::string("0x18BF10DE");
  EXPECT_THAT(mig_differences(config, {gpu}), ElementsAre(HasSubstr("is in no entry")));
  for (const char* id : {"0x233510DE:", "0x233510DE:18BE10DE", "0x233510DE:0x18BE10DE:0x1"}) {
    EXPECT_THAT(refusal_of_entry(std::string("device-filter: '") + id +
                                 "', devices: all, mig-enabled: false"),
                HasSubstr("device-filter must be IDs"));
  }
}

// Drivers and boards are newer than the tables.
TEST(MigConfig, AProfileThatIsNotKnownIsTakenAndSaidToBeUnchecked) {
  const auto configs = mig_configs_from_yaml(
      "version: v1\nmig-configs:\n  a:\n"
      "  - {devices: all, mig-enabled: true, mig-devices: {1g.16gb+me: 2, 3g.71gb: 1}}\n");
  const MigConfig config{"f", "a", configs.at("a")};
  EXPECT_THAT(mig_differences(config, {h200({"1g.16gb+me", "3g.71gb", "1g.16gb+me"})}), IsEmpty());
  EXPECT_THAT(mig_differences(config, {h200({"3g.71gb"})}),
              ElementsAre(testing::EndsWith(
                  "not 2 x 1g.16gb+me, 1 x 3g.71gb (unchecked, as nearmetal does not know it of "
                  "this board: 1g.16gb+me)")));
}

// As assets/state-mig-manager/0400_configmap.yaml of NVIDIA/gpu-operator and what its users keep
// beside it, under other names, too, and as `kubectl get -o yaml` prints it.
TEST(MigConfig, FilesInAConfigMapAreRead) {
  const std::string map = R"(apiVersion: v1
kind: ConfigMap
metadata:
  name: custom-mig-config
data:
  nvidia_mig.yaml: |
    version: v1
    mig-configs:
      all-1g.18gb:
        - devices: all
          mig-enabled: true
          mig-devices:
            "1g.18gb": 7
)";
  const std::string deployment =
      "---\nkind: Deployment\nspec: {a: {b: {c: {d: {e: {f: {g: {h: {i: [1]}}}}}}}}}\n---\n";
  const std::string other =
      "kind: ConfigMap\ndata:\n  hooks.yaml: 'version: v1'\n"
      "  config.yaml: \"version: v1\\nmig-configs: {off: [{devices: all, mig-enabled: false}]}\"\n";
  EXPECT_EQ(mig_configs_from_yaml(map).at("all-1g.18gb").at(0).mig_devices.at("1g.18gb"), 7);
  EXPECT_EQ(mig_configs_from_yaml(map + deployment + other).size(), 2);
  EXPECT_THAT(refusal_of([&] { mig_configs_from_yaml(map + "---\n" + map); }),
              HasSubstr("another file has 'all-1g.18gb', too"));
  EXPECT_THAT(refusal_of([&] { mig_configs_from_yaml("kind: ConfigMap\ndata: {a: b}\n"); }),
              HasSubstr("no file in a ConfigMap has mig-configs"));
  EXPECT_EQ(refusal_of([&] {
              mig_configs_from_yaml(
                  "kind: ConfigMap\ndata:\n  a: |\n    version: v1\n    mig-configs: []\n");
            }),
            "line 3: in 'a': line 2: mig-configs must be labels with entries");
  const TemporaryFolder folder;
  const MigConfig config = read_mig_config(folder.write("cm.yaml", map).string());
  EXPECT_EQ(apply_command(config),
            "kubectl label --overwrite node NODE nvidia.com/mig.config=all-1g.18gb");
}

TEST(MigConfig, HostileYamlEndsAtOnce) {
  const std::string deep(size_t{1} << 19, '[');
  std::string bomb = "version: v1\na: &a [x, x, x, x, x, x, x, x, x]\n";
  for (char c = 'a'; c < 'i'; ++c) {
    bomb += std::string(1, static_cast<char>(c + 1)) + ": &" + static_cast<char>(c + 1) + " [*" +
            c + ", *" + c + ", *" + c + "]\n";
  }
  const std::vector<std::pair<std::string, std::string>> cases = {
      {bomb, "line 2: anchors are not taken"},
      {"version: *a", "no YAML"},
      {deep, "line 1: it is nested too deeply"},
      {std::string(size_t{1} << 19, '{'), "line 1: it is nested too deeply"},
      {std::string((size_t{1} << 20) + 1, ' '), "it is larger than 1 MiB"},
      {"version: !!str v1", "tags are not taken"},
      {"version: v1\n---\nversion: v1", "there is a second document"},
      {"version: v1\nversion: v1", "line 2: 'version' is there twice"},
      {"? [a]\n: b", "a key must be a text"},
      {"", "it must have a version and mig-configs"},
      {"[]", "it must have a version and mig-configs"},
      {"version: v2\nmig-configs: {}", "line 1: version must be v1"},
      {"version: v1", "mig-configs must have at least one entry"},
      {"version: v1\nmig-configs: {a: []}", "'a' must be a list of entries"},
      {"mig-configs: {a: [{devices: all, mig-enabled: false}]}", "version must be there"},
      {"version: v1\nname: x", "line 2: 'name' is not known"},
      {"a: [", "no YAML"},
      {std::string("\0\0", 2), "no YAML"},
      {"- \n,", "no YAML"},  // of which yaml-cpp reads documents without end
  };
  for (const auto& [text, expected] : cases) {
    const std::string refusal = refusal_of([&, &yaml = text] { mig_configs_from_yaml(yaml); });
    EXPECT_THAT(refusal, HasSubstr(expected)) << text.substr(0, 80);
    EXPECT_LT(refusal.size(), 400);
  }
}

TEST(MigConfig, TheCorpusOfTheFuzzerNeitherCrashesNorThrows) {
  int inputs = 0;
  const std::string folder = std::string(NM_TESTS_FOLDER) + "/fuzz/yaml_corpus";
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    SCOPED_TRACE(entry.path().string());
    const std::string text = content_of(entry.path());
    EXPECT_EQ(LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(text.data()), text.size()),
              0);
    ++inputs;
  }
  EXPECT_GE(inputs, 7);
}

TEST(MigConfig, MostFilesOfTheFuzzerGetPastTheirFirstLine) {
  const Reach reach = reach_of_random_inputs(500);
  EXPECT_EQ(reach.inputs, 500);
  EXPECT_GT(reach.share_past_first(), 0.9);
  EXPECT_GT(reach.share_taken(), 0.1);
  EXPECT_LT(reach.share_taken(), 0.9);  // there are mistakes, too
}

TEST(MigConfig, IsNamedByFileAndLabel) {
  const TemporaryFolder folder;
  const std::string path = folder.write("c.yaml", two_kinds).string();
  EXPECT_EQ(read_mig_config(path + "#mixed").entries.size(), 2);
  const auto refusal = [](const std::string& place) {
    return refusal_of([&] { read_mig_config(place); });
  };
  EXPECT_EQ(refusal(path), path +
                               ": say which of its configurations, as in FILE#LABEL: "
                               "all-disabled, mixed");
  EXPECT_THAT(refusal(path + "#none"), HasSubstr("no configuration 'none'; it has all-disabled"));
  EXPECT_THAT(refusal(path + ".no"), HasSubstr("No such file"));
  const std::string one = folder
                              .write("d.yaml",
                                     "version: v1\nmig-configs:\n  only:\n"
                                     "  - {devices: all, mig-enabled: false}\n")
                              .string();
  EXPECT_EQ(read_mig_config(one).label, "only");
}

}  // namespace
}  // namespace nearmetal
