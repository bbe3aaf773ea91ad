// Every setting of `run` is declared once: what follows from the declaration agrees.
#include "reports/document/settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "bench/cli/command_line.h"
#include "bench/cli/parse_value.h"
#include "bench/cli/run_request.h"
#include "bench/run/defaults.h"
#include "comm/layout/layout_json.h"
#include "reports/json/json.h"
#include "reports/json/json_reader.h"
#include "reports/json/json_writer.h"
#include "reports/json/report_fields.h"
#include "tests/support/parse_options.h"

namespace nearmetal {
namespace {

using Json = nlohmann::ordered_json;

// Another value than the one that counts where nothing is asked for.
void change(const Setting&, std::string& network) { network = "resnet18"; }
void change(const Setting&, bool& value) { value = true; }
void change(const Setting&, LossScale& scale) { scale.initial = 128; }
void change(const Setting& setting, int64_t& value) {
  value = static_cast<int64_t>(setting.range.minimum) + 5;
}
void change(const Setting& setting, double& value) { value = setting.range.minimum + 0.25; }
template <Named E>
void change(const Setting& setting, E& value) {
  value = *from_name<E>(choices_of<E>(setting).back());
}
template <class T>
void change(const Setting& setting, std::optional<T>& value) {
  change(setting, value.emplace());
}

RunConfig with_changed(const Setting& changed) {
  RunConfig config;
  visit_settings(
      [&](const Setting& setting, auto& value) {
        if (setting.name == changed.name) change(setting, value);
      },
      config);
  return config;
}

std::string option_for(const Setting& changed, const RunConfig& config) {
  std::string option = flag_of(changed);
  visit_settings(
      [&](const Setting& setting, const auto& value) {
        if (setting.name != changed.name) return;
        if constexpr (!std::is_same_v<decltype(value), const bool&>) {
          option += "=" + std::optional<std::string>(setting_text(setting, value)).value();
        }
      },
      config);
  return option;
}

TEST(Settings, AnOptionSetsItsSettingInTheCommandsThatTakeIt) {
  for (const Setting& setting : settings_of_run()) {
    const RunConfig changed = with_changed(setting);
    EXPECT_NE(changed, RunConfig{}) << setting.name;
    for (const auto& [command, bit] : {std::pair("run", in_run), std::pair("sweep", in_sweep)}) {
      if ((setting.commands & bit) == 0) continue;
      RunRequest request;
      const auto declare = [&, bit = bit](Options& options) {
        bit == in_run ? add_run_options(options, request) : add_settings(options, request, bit);
      };
      parse_options(command, declare, {option_for(setting, changed)});
      EXPECT_EQ(request.config, changed) << setting.name;
      EXPECT_THAT(request.given, testing::ElementsAre(setting.name));
      Origins origins = origins_of();
      origins.at(setting.name) = Origin::flag;
      EXPECT_EQ(origins_of(request.given), origins) << setting.name;
    }
  }
}

TEST(Settings, ADocumentHoldsThemInTheirOrder) {
  for (const Setting& setting : settings_of_run()) {
    RunConfig changed = with_changed(setting);
    if (changed.device == Device::automatic) changed.device = Device::cpu;
    const json::Document document = json::Document::parse(json::Writer::json_of(changed).dump());
    json::Reader reader(document, json::Place{});
    RunConfig read;
    json::fields(reader, read);
    EXPECT_EQ(read, changed) << setting.name;
  }
  std::vector<std::string> names, written;
  for (const Setting& setting : settings_of_run()) names.emplace_back(setting.name);
  const Json plain = json::Writer::json_of(RunConfig{});
  for (const auto& [name, value] : plain.items()) written.push_back(name);
  EXPECT_EQ(written, names);
}

TEST(Settings, ARerunAsksForThoseThatItRepeats) {
  for (const Setting& setting : settings_of_run()) {
    RunConfig changed = with_changed(setting);
    fill_defaults(changed, setting.only_for.value_or(Device::cpu));
    const auto asked = testing::Contains(testing::StartsWith(flag_of(setting)));
    if (setting.repeated) {
      EXPECT_THAT(run_arguments(repeated_workload(changed)), asked);
    } else {
      EXPECT_THAT(run_arguments(repeated_workload(changed)), Not(asked));
    }
  }
}

TEST(Settings, TheSchemaOfReportsDescribesThem) {
  const Json config = Json::parse(report_schema()).at("$defs").at("config");
  for (const Setting& setting : settings_of_run()) {
    const Json& property = config.at("properties").at(setting.name);
    EXPECT_EQ(property.value("description", ""), setting.meaning) << setting.name;
    const Json& required = config.at("required");
    const bool is_required =
        std::find(required.begin(), required.end(), setting.name) != required.end();
    EXPECT_EQ(is_required, !setting.added) << setting.name;
  }
  EXPECT_EQ(config.at("properties").size(), settings_of_run().size());
}

TEST(Settings, LayoutFilesTakeThoseOfSweeps) {
  Json workload = Json::parse(layout_schema()).at("$defs").at("workload").at("properties");
  EXPECT_EQ(workload.erase("global_batch"), 1U) << "that of all ranks is none of `run`";
  for (const Setting& setting : settings_of_run()) {
    EXPECT_EQ(workload.erase(layout_name_of(setting)), (setting.commands & in_sweep) != 0)
        << setting.name;
  }
  EXPECT_EQ(workload.dump(), "{}");
}

}  // namespace
}  // namespace nearmetal
