#include "reports/json/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "base/errors.h"
#include "base/pattern.h"
#include "reports/json/json_writer.h"
#include "reports/json/report_files.h"
#include "tests/support/refusal.h"
#include "tests/support/sample_report.h"
#include "tests/support/temporary_folder.h"

namespace nearmetal {
namespace {

using json::Json;
using testing::ElementsAre;
using testing::HasSubstr;

std::string refusal_of_report(const std::string& text) {
  return refusal_of<InvalidReport>([&] { report_from_json(text); });
}

// The sample with the value at this place replaced.
std::string sample_with(const std::string& pointer, const Json& value) {
  Json document = Json::parse(to_json(sample_report()));
  document[Json::json_pointer(pointer)] = value;
  return document.dump();
}

TEST(ReportJson, RoundTripsUnchanged) {
  const Report report = sample_report();
  const std::string text = to_json(report);
  const Report read = report_from_json(text);
  EXPECT_EQ(to_json(read), text);
  EXPECT_EQ(read.invocation.argv, report.invocation.argv);
  EXPECT_EQ(read.invocation.origins, report.invocation.origins);
  EXPECT_EQ(read.environments, report.environments);
  EXPECT_EQ(read.arms[0].runs[0].ranks, report.arms[0].runs[0].ranks) << "doubles to the last bit";
  EXPECT_EQ(read.arms[0].runs[0].kernel_choices, report.arms[0].runs[0].kernel_choices);
}

TEST(ReportJson, UnknownIsNullWithItsReasonBesideIt) {
  const Json run = Json::parse(to_json(sample_report()))["arms"][0]["runs"][0];
  EXPECT_TRUE(run["proof"]["window_end_gradient_norm"].is_null());
  EXPECT_EQ(run["proof"]["unknown"]["window_end_gradient_norm"],
            "the gradient of that step was not finite");
  EXPECT_FALSE(run["proof"]["unknown"].contains("window_end_loss"));
}

TEST(ReportJson, ARecordWithUnknownValuesNeedsTheirReasons) {
  Json document = Json::parse(to_json(sample_report()));
  document["arms"][0]["runs"][0]["proof"].erase("unknown");
  EXPECT_THAT(refusal_of_report(document.dump()), HasSubstr("/arms/0/runs/0/proof/unknown"));
}

TEST(ReportJson, PlansOfEarlierReportsKnowTheirErrorsWithoutUnknown) {
  Json document = Json::parse(to_json(sample_report()));
  Json& plan = document["arms"][0]["runs"][0]["plans"][0];
  plan.erase("unknown");
  plan["relative_error"] = 0.25;
  EXPECT_EQ(*report_from_json(document.dump()).arms[0].runs[0].kernel_choices[0].relative_error,
            0.25);
  plan["relative_error"] = nullptr;
  EXPECT_THAT(refusal_of_report(document.dump()), HasSubstr("/arms/0/runs/0/plans/0/unknown"));
}

TEST(ReportJson, EverySettingHasItsOrigin) {
  const Json config = Json::parse(to_json(sample_report()))["invocation"]["config"];
  EXPECT_EQ(config["warmup"]["origin"], "flag");
  EXPECT_EQ(config["batch"]["origin"], "default");
  EXPECT_EQ(config["batch"]["value"], 256);
}

TEST(ReportJson, ReportsWithoutEvidenceOfTheMachineStayReadable) {
  Json document = Json::parse(to_json(sample_report()));
  Json& environment = document["environments"][0];
  for (const char* name :
       {"claim", "virtualisation", "processor", "limits", "network", "host_facts"}) {
    ASSERT_EQ(environment.erase(name), 1) << name;
  }
  for (const char* name : {"monitoring", "binding"}) {
    ASSERT_EQ(document["arms"][0]["runs"][0]["ranks"][0].erase(name), 1) << name;
  }
  document["invocation"]["config"].erase("monitor_hz");
  const Report read = report_from_json(document.dump());
  EXPECT_FALSE(read.environments[0].virtualisation.machine);
  EXPECT_EQ(read.environments[0].gpus[0].serial.reason, "not determined");
  EXPECT_FALSE(read.arms[0].runs[0].ranks[0].monitoring);
  EXPECT_FALSE(read.arms[0].runs[0].ranks[0].binding);
}

TEST(ReportJson, BytesThatAreNotUtf8AreReplaced) {
  Report report = sample_report();
  report.invocation.argv = {"nearmetal", "\xff\xfe"};
  EXPECT_EQ(report_from_json(to_json(report)).invocation.argv[1], "\xef\xbf\xbd\xef\xbf\xbd");
}

TEST(ReportJson, NumbersThatAreNotFiniteAreNeverWritten) {
  for (const double bad : {std::nan(""), std::numeric_limits<double>::infinity()}) {
    Report report = sample_report();
    report.arms[0].runs[0].throughput = bad;
    EXPECT_THROW(to_json(report), std::logic_error);
    report = sample_report();
    report.arms[0].runs[0].ranks[0].step_seconds[1] = bad;
    EXPECT_THROW(to_json(report), std::logic_error);
  }
}

TEST(ReportJson, FieldsOfLaterMinorVersionsAreAllowed) {
  EXPECT_EQ(refusal_of_report(sample_with("/schema_version", "1.7")), "");
  EXPECT_EQ(refusal_of_report(sample_with("/arms/0/runs/0/moon_phase", 0.5)), "");
}

TEST(ReportJson, ErrorsNameThePlace) {
  EXPECT_THAT(refusal_of_report(sample_with("/schema_version", "2.0")),
              HasSubstr("/schema_version must be"));
  EXPECT_THAT(refusal_of_report(sample_with("/schema", "other")), HasSubstr("nearmetal/report"));
  EXPECT_THAT(refusal_of_report(sample_with("/arms/0/runs/0/ranks/0/step_seconds/2", -1)),
              HasSubstr("/arms/0/runs/0/ranks/0/step_seconds/2 must be above 0"));
  EXPECT_THAT(refusal_of_report(sample_with("/status", "fine")),
              HasSubstr("complete, partial or failed"));
  EXPECT_THAT(refusal_of_report(sample_with("/exit_code", 256)), HasSubstr("from 0"));
  EXPECT_THAT(refusal_of_report(sample_with("/invocation/config/batch/value", "many")),
              HasSubstr("batch"));
  EXPECT_THAT(refusal_of_report(sample_with("/invocation/config/batch", 7)),
              HasSubstr("an object"));
  EXPECT_THAT(refusal_of_report(sample_with("/arms/0/runs/0/window", Json())),
              HasSubstr("/arms/0/runs/0/unknown/window"));
  EXPECT_THAT(refusal_of_report(sample_with("/invocation/started_at", "yesterday")),
              HasSubstr("a time"));
  const Json of_all_ranks = {{"code", "drift"}, {"text", "it drifts"}, {"rank", nullptr}};
  EXPECT_THAT(
      refusal_of_report(sample_with("/arms/0/runs/0/warnings", Json::array({of_all_ranks}))),
      HasSubstr("/arms/0/runs/0/warnings/0/rank must be left out"));
}

TEST(ReportJson, IntegersMayBeWrittenAsDoublesOfTheSameValue) {
  EXPECT_EQ(refusal_of_report(sample_with("/exit_code", 6.0)), "");
  EXPECT_NE(refusal_of_report(sample_with("/exit_code", 6.5)), "");
  EXPECT_NE(refusal_of_report(sample_with("/arms/0/runs/0/parameters", 9007199254740992)), "");
}

TEST(ReportJson, WhatIsNoJsonIsRefused) {
  const std::string good = to_json(sample_report());
  for (const std::string& text :
       {std::string(), std::string("{"), good.substr(0, good.size() / 2), good + "x",
        std::string("{\"schema\": NaN}"), std::string("[1e999]"), std::string(1000000, '['),
        std::string("\xff\xfe\x00", 3), std::string("null"), good + std::string("\0x", 2)}) {
    EXPECT_NE(refusal_of_report(text), "") << text.substr(0, 80);
  }
}

TEST(ReportJson, AReasonStaysShortWhereALongWordIsNoJson) {
  std::string word;
  for (int i = 0; i < 3000; ++i) word += "\u00e9";  // two bytes each
  try {
    report_from_json("[\"" + word + "\" oops]");
    FAIL();
  } catch (const InvalidReport& error) {
    const std::string reason = error.what();
    EXPECT_LT(reason.size(), 250);
    EXPECT_THAT(reason, testing::StartsWith("not JSON: parse error at line 1"));
    EXPECT_THAT(reason, testing::EndsWith("\u00e9..."));
  }
}

TEST(ReportJson, WhatWouldTakeTooMuchIsRefused) {
  EXPECT_THAT(refusal_of_report(std::string(65, '[') + std::string(65, ']')),
              HasSubstr("nested too deeply"));
  std::string many_values = "[0";
  for (int i = 0; i < 50'000'001; ++i) many_values += ',';
  EXPECT_THAT(refusal_of_report(many_values + "]"), HasSubstr("too many values"));
  EXPECT_NO_THROW(require_within_limits("[\"" + std::string(1000, '[') + "\\\"[[\"]"));
  std::string many_texts = "[0";
  for (int i = 0; i < 17'000'000; ++i) many_texts += ",\"\"";
  EXPECT_THAT(refusal_of_report(many_texts + "]"), HasSubstr("too many values"));
  std::string many_keys = "{\"k\":0";
  for (int i = 0; i < 100'000; ++i) many_keys += ",\"" + std::to_string(i) + "\":0";
  EXPECT_THAT(refusal_of_report(many_keys + "}"), HasSubstr("/schema must be there")) << "and soon";
}

TEST(ReportJson, PlacesAreJsonPointers) {
  Json variables = {{"a/b~c", 7}};
  EXPECT_THAT(refusal_of_report(sample_with("/environments/0/variables", variables)),
              HasSubstr("/environments/0/variables/a~1b~0c must be a text"));
}

TEST(ReportJson, FilesThatCannotBeReadAreNamed) {
  const TemporaryFolder folder;
  for (const auto& path : {folder / "none.json", folder.path(), folder.write("empty.json", ""),
                           folder.write("broken.json", "{\"schema\": 1}")}) {
    try {
      read_report(path);
      FAIL() << path;
    } catch (const InvalidReport& error) {
      EXPECT_THAT(error.what(), HasSubstr(path.string()));
      EXPECT_THAT(error.what(), Not(HasSubstr("\n")));
    }
  }
  EXPECT_NO_THROW(read_report(folder.write("good.json", to_json(sample_report()))));
}

std::vector<std::string> sources_of(const std::filesystem::path& path) {
  std::vector<std::string> sources;
  for (const ReportText& report : report_texts(path)) {
    sources.push_back(report.source.substr(path.string().size()));
    EXPECT_NO_THROW(read_report(report));
  }
  return sources;
}

TEST(ReportJson, ALogMayHoldSeveral) {
  const TemporaryFolder folder;
  const std::string one = to_json(sample_report());
  const std::string line = Json::parse(one).dump();
  const auto lines = std::ranges::count(one, '\n');
  EXPECT_THAT(sources_of(folder.write("one", one)), ElementsAre(""));
  EXPECT_THAT(sources_of(folder.write("two", one + one)),
              ElementsAre(":1", ":" + std::to_string(1 + lines)));
  EXPECT_THAT(sources_of(folder.write("joined", line + line + " " + line)),
              ElementsAre(":1", ":1", ":1"));
  const std::string before = "{ a \" node\nlaunch 1 of 2: {1x1x2}\n{\"event\": \"{\"}\n";
  EXPECT_THAT(sources_of(folder.write("log", before + one + "job ended\n")), ElementsAre(""));
  EXPECT_THAT(sources_of(folder.write("logs", before + one + "between\n" + line + "\nend")),
              ElementsAre(":4", ":" + std::to_string(5 + lines)));
}

TEST(ReportJson, ADamagedReportInALogIsRefusedByItsLine) {
  const TemporaryFolder folder;
  const std::string one = to_json(sample_report());
  const auto path = folder.write("log", "start\n" + one.substr(0, 900) + "\n" + one);
  const std::vector<ReportText> found = report_texts(path);
  ASSERT_EQ(found.size(), 2);
  EXPECT_EQ(found[0].source, path.string() + ":2");
  EXPECT_THROW(read_report(found[0]), InvalidReport);
  EXPECT_NO_THROW(read_report(found[1]));
  EXPECT_THROW(read_report(path), InvalidReport) << "as it holds two";
  using std::string_literals::operator""s;
  EXPECT_THROW(read_report(folder.write("nul", one + "\0"s)), InvalidReport);
}

TEST(ReportJson, TheHashOfAConfigurationIsThatOfTheWork) {
  const RunConfig base;
  RunConfig shown = base;
  shown.json = shown.quiet = shown.force = shown.no_progress = true;
  shown.output = "elsewhere.json";
  EXPECT_EQ(config_sha256(shown), config_sha256(base));
  RunConfig other = base;
  other.seed = 2;
  EXPECT_NE(config_sha256(other), config_sha256(base));
}

TEST(ReportJson, TheHashOfPlansIsThatOfTheChoices) {
  const KernelChoice a{"a", "x", 1, 0};
  const KernelChoice b{"b", "y", 2, 0};
  const KernelChoice a_again{"a", "x", 5, 0.1};
  const KernelChoice a_changed{"a", "z", 1, 0};
  EXPECT_EQ(kernel_choices_sha256({a, b}), kernel_choices_sha256({b, a_again}));
  EXPECT_NE(kernel_choices_sha256({a, b}), kernel_choices_sha256({a_changed, b}));
  EXPECT_NE(kernel_choices_sha256({{"ab", "c", 0, 0}}), kernel_choices_sha256({{"a", "bc", 0, 0}}));
}

TEST(Form, AcceptsWhatItsPatternOrItsNamesSay) {
  const std::vector<std::string> texts = {"",
                                          "a",
                                          "z_",
                                          "aB",
                                          "a b",
                                          {'a', '\0'},
                                          "1.",
                                          "1.10",
                                          "2.0",
                                          std::string(39, '0'),
                                          std::string(40, 'f'),
                                          std::string(64, '9'),
                                          std::string(64, 'g'),
                                          std::string(65, 'a')};
  for (const auto& form : {json::hash, json::commit, json::code, json::readable_version}) {
    const Pattern pattern(form.pattern);
    for (const auto& text : texts) EXPECT_EQ(form.accepts(text), pattern.matches(text)) << text;
  }
  EXPECT_TRUE(json::time_stamp.accepts("2026-01-31T12:00:00Z"));
  EXPECT_FALSE(json::time_stamp.accepts("2026-01-31T12:00:00Z "));
  for (const char* time : {"2026-13-01T12:00:00Z", "2026-00-01T12:00:00Z", "2026-04-31T12:00:00Z",
                           "2026-02-30T12:00:00Z", "2026-01-00T12:00:00Z", "2026-01-31T24:00:00Z",
                           "2026-01-31T12:60:00Z", "2026-01-31T12:00:60Z"}) {
    EXPECT_FALSE(json::time_stamp.accepts(time)) << time;
  }
  EXPECT_TRUE(json::time_stamp.accepts("2028-02-29T23:59:59Z"));
  EXPECT_TRUE(json::readable_version.accepts("1.10"));
  EXPECT_FALSE(json::readable_version.accepts("1x0"));
  EXPECT_TRUE(json::code.accepts(std::string(1 << 20, 'a')));
  constexpr json::Form way = json::one_of("", "weak", "strong");
  EXPECT_TRUE(way.accepts("") && way.accepts("strong"));
  EXPECT_FALSE(way.accepts("wea"));
  EXPECT_EQ(json::one_of("a", "b", "c").must_be(), "a, b or c");
}

TEST(ReportSchema, IsJsonAndKnowsEverySetting) {
  const Json schema = Json::parse(report_schema());
  const Json& settings = schema["$defs"]["config"]["properties"];
  EXPECT_EQ(settings.size(), settings_of_run().size());
  for (const Setting& setting : settings_of_run()) EXPECT_TRUE(settings.contains(setting.name));
}

}  // namespace
}  // namespace nearmetal
