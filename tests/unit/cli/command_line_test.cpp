#include "bench/cli/command_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "bench/cli/process.h"
#include "bench/cli/run_request.h"
#include "bench/commands/program.h"
#include "reports/json/json.h"
#include "reports/json/json_writer.h"
#include "reports/json/report_fields.h"
#include "tests/support/parse_options.h"
#include "tests/support/refusal.h"

namespace nearmetal {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Action parse(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "nearmetal");
  return parse_command_line(program(), arguments);
}

// The output of a command that needs nothing but its options.
std::string printed(const std::vector<std::string>& arguments) {
  std::ostringstream out;
  const ProcessClock clock;
  const std::atomic<int> stop = 0;
  parse(arguments)(
      {.argv = arguments, .terminal = {.out = out, .err = out}, .clock = clock, .stop = stop});
  return out.str();
}

std::string refusal_of_arguments(const std::vector<std::string>& arguments) {
  return refusal_of([&] { parse(arguments); });
}

// As they are named in the report.
std::vector<std::string> changed_settings(const RunConfig& a, const RunConfig& b) {
  const json::Json before = json::Writer::json_of(a);
  const json::Json after = json::Writer::json_of(b);
  std::vector<std::string> changed;
  for (const auto& [name, value] : after.items()) {
    if (before.at(name) != value) changed.push_back(name);
  }
  return changed;
}

TEST(CommandLineTest, WithoutOptionsTheDefaultsAreTheStructs) {
  const RunRequest request = parse_run_flags({});
  EXPECT_THAT(changed_settings(RunConfig{}, request.config), testing::IsEmpty());
  EXPECT_THAT(request.given, testing::IsEmpty());
}

// Each flag sets its member and no other: the JSON of the configuration changes in that field
// alone.
TEST(CommandLineTest, EachOptionSetsItsSettingAndSaysWhoDid) {
  const std::vector<std::vector<std::string>> flags = {
      {"model", "--model", "resnet18"},
      {"device", "--device", "cpu"},
      {"gpu", "--gpu", "1"},
      {"precision", "--precision", "bf16"},
      {"batch", "--batch", "3"},
      {"image_size", "--image-size", "64"},
      {"classes", "--classes", "10"},
      {"sequence", "--sequence", "128"},
      {"steps", "--steps", "5"},
      {"duration_seconds", "--duration", "5"},
      {"warmup", "--warmup", "9"},
      {"input", "--input", "host"},
      {"launch", "--launch", "stream"},
      {"host_wait", "--host-wait", "block"},
      {"kernels", "--kernels", "cudnn"},
      {"accumulate", "--accumulate", "4"},
      {"pipeline", "--pipeline", "2"},
      {"micro_batches", "--micro-batches", "8"},
      {"schedule", "--schedule", "gpipe"},
      {"cuts", "--cuts", "layer2.3,layer3.2"},
      {"learning_rate", "--learning-rate", "0.25"},
      {"momentum", "--momentum", "0.5"},
      {"weight_decay", "--weight-decay", "0"},
      {"optimizer", "--optimizer", "adamw"},
      {"zero_init", "--zero-init"},
      {"loss_scale", "--loss-scale", "128"},
      {"seed", "--seed", "42"},
      {"threads", "--threads", "2"},
      {"update", "--update", "independent"},
      {"ranks", "--ranks", "4"},
      {"bind", "--bind", "off"},
      {"bucket_mib", "--bucket-mib", "8"},
      {"gradient_type", "--gradient-type", "bf16"},
      {"all_reduce", "--all-reduce", "hierarchical"},
      {"nccl_algorithm", "--nccl-algorithm", "tree"},
      {"forward_only", "--forward-only"},
      {"inference", "--inference"},
      {"verify", "--verify"},
      {"profile", "--profile"},
      {"attribute", "--attribute"},
      {"digest", "--digest"},
      {"plan_cache", "--plan-cache", "off"},
      {"plans", "--plans", "r.json"},
      {"output", "--output", "o.json"},
      {"environment", "--environment", "vm"},
      {"host_facts", "--host-facts", "f.json"},
      {"no_host_info", "--no-host-info"},
      {"monitor_hz", "--monitor-hz", "2"},
      {"force", "--force"},
      {"json", "--json"},
      {"quiet", "--quiet"},
      {"no_progress", "--no-progress"},
  };
  EXPECT_EQ(flags.size(), settings_of_run().size()) << "an option is missing in this test";
  for (const auto& flag : flags) {
    const RunRequest request = parse_run_flags({flag.begin() + 1, flag.end()});
    EXPECT_THAT(request.given, ElementsAre(flag[0]));
    EXPECT_THAT(changed_settings(RunConfig{}, request.config), ElementsAre(flag[0]));
  }
}

TEST(CommandLineTest, Values) {
  EXPECT_EQ(parse_run_flags({"--batch", "auto"}).config.batch, largest_that_fits);
  EXPECT_EQ(parse_run_flags({"--batch=12"}).config.batch, 12);
  EXPECT_EQ(parse_run_flags({"--batch", "010"}).config.batch, 10) << "decimal, not octal";
  EXPECT_EQ(parse_run_flags({"--batch", "1", "--batch", "2"}).config.batch, 2)
      << "the last one counts";
  EXPECT_EQ(parse_run_flags({"--duration", "90"}).config.duration_seconds, 90);
  EXPECT_EQ(parse_run_flags({"--duration", "1.5s"}).config.duration_seconds, 1.5);
  EXPECT_EQ(parse_run_flags({"--duration", "2m"}).config.duration_seconds, 120);
  EXPECT_EQ(parse_run_flags({"--duration", "1.5h"}).config.duration_seconds, 5400);
  EXPECT_EQ(parse_run_flags({"--duration", "1h"}).config.duration_seconds, 3600);
  EXPECT_TRUE(parse_run_flags({"--loss-scale", "dynamic"}).config.loss_scale->dynamic);
  EXPECT_EQ(parse_run_flags({"--seed", "9007199254740991"}).config.seed, 9007199254740991);
}

TEST(CommandLineTest, BadValuesAreNamed) {
  const std::vector<std::pair<std::string, std::string>> bad = {{"--batch", "0"},
                                                                {"--batch", "-1"},
                                                                {"--batch", "1.5"},
                                                                {"--batch", "1e3"},
                                                                {"--batch", "x"},
                                                                {"--batch", "99999999999999999999"},
                                                                {"--batch", ""},
                                                                {"--batch", "12x"},
                                                                {"--steps", "0"},
                                                                {"--warmup", "0"},
                                                                {"--image-size", "-224"},
                                                                {"--classes", "1"},
                                                                {"--duration", "0"},
                                                                {"--duration", "-3"},
                                                                {"--duration", "5x"},
                                                                {"--duration", "s"},
                                                                {"--duration", "nan"},
                                                                {"--learning-rate", "inf"},
                                                                {"--learning-rate", "-1"},
                                                                {"--momentum", "1.1"},
                                                                {"--weight-decay", "nan"},
                                                                {"--loss-scale", "0"},
                                                                {"--seed", "-1"},
                                                                {"--seed", "9007199254740992"},
                                                                {"--gpu", "-1"},
                                                                {"--threads", "-2"},
                                                                {"--output", ""},
                                                                {"--device", "tpu"},
                                                                {"--precision", "fp8"},
                                                                {"--model", "vgg15"},
                                                                {"--gradient-type", "tf32"},
                                                                {"--all-reduce", "mpi"}};
  for (const auto& [flag, value] : bad) {
    const std::string text = refusal_of_arguments({"run", flag, value});
    EXPECT_THAT(text, HasSubstr(flag)) << flag << " " << value;
    EXPECT_THAT(text, HasSubstr("'" + value + "'")) << flag << " " << value;
    EXPECT_THAT(text, Not(HasSubstr("\n")));
  }
}

TEST(CommandLineTest, SuggestsWhatWasMeant) {
  EXPECT_EQ(refusal_of_arguments({"rnu"}),
            "unknown command 'rnu'; did you mean 'run'? (nearmetal --help)");
  EXPECT_THAT(refusal_of_arguments({"run", "--bacth", "3"}), HasSubstr("did you mean '--batch'?"));
  EXPECT_THAT(refusal_of_arguments({"run", "--bacth=3"}), HasSubstr("did you mean '--batch'?"));
  EXPECT_THAT(refusal_of_arguments({"run", "--model", "resnet51"}),
              HasSubstr("did you mean 'resnet50'?"));
  EXPECT_THAT(refusal_of_arguments({"run", "--device", "gpu"}),
              HasSubstr("did you mean 'cuda'? (auto, cpu, cuda)"));
  EXPECT_EQ(refusal_of_arguments({"--json", "run"}),
            "--json goes behind the command: nearmetal run --json");
  EXPECT_THAT(refusal_of_arguments({"baseline", "add", "--baselins", "x", "main", "a.json"}),
              HasSubstr("did you mean '--baselines'? (nearmetal baseline add --help)"));
  EXPECT_THAT(refusal_of_arguments({"baseline", "ad"}), HasSubstr("did you mean 'add'?"));
  EXPECT_THAT(refusal_of_arguments({"compare", "--bare", "a", "--vm", "b", "--marign", "3%"}),
              HasSubstr("did you mean '--margin'?"))
      << "and not that 3% is one report too few";
  EXPECT_THAT(refusal_of_arguments({"rerun", "a", "--run", "1"}),
              HasSubstr("did you mean '--runs'?"));
  EXPECT_THAT(refusal_of_arguments({"sweep", "1x1x1", "--device", "cpu"}),
              HasSubstr("--hosts localhost:0 trains on the CPUs"));
  EXPECT_THAT(refusal_of_arguments({"run", "surplus"}), HasSubstr("unknown argument 'surplus'"));
}

TEST(CommandLineTest, IncompleteLines) {
  EXPECT_EQ(refusal_of_arguments({"run", "--batch"}), "--batch takes a value");
  EXPECT_THAT(refusal_of_arguments({"validate"}), HasSubstr("FILE"));
  EXPECT_THAT(refusal_of_arguments({"schema", "plans"}), HasSubstr("'plans'"));
  EXPECT_THAT(refusal_of_arguments({"compare"}), HasSubstr("BASE NEW"));
  EXPECT_THAT(refusal_of_arguments({"compare", "a", "b", "c"}), HasSubstr("not 3"));
  EXPECT_THAT(refusal_of_arguments({"compare", "--base", "a"}), HasSubstr("--new"));
  EXPECT_THAT(refusal_of_arguments({"compare", "--bare", "a", "--new", "b"}),
              HasSubstr("one of: BASE NEW"));
  EXPECT_THAT(refusal_of_arguments({"compare", "a", "b", "--base", "c", "--new", "d"}),
              HasSubstr("one of"));
  EXPECT_THAT(refusal_of_arguments({"compare", "a", "b", "--json", "--markdown"}),
              HasSubstr("two forms"));
  EXPECT_THAT(refusal_of_arguments({"gate", "a"}), HasSubstr("NEW"));
  EXPECT_THAT(refusal_of([] { printed({"baseline"}); }), HasSubstr("add, remove, list or show"));
  EXPECT_THAT(refusal_of_arguments({"baseline", "frob"}), HasSubstr("'frob'"));
  EXPECT_THAT(refusal_of_arguments({"baseline", "add", "name"}), HasSubstr("FILE"));
}

TEST(CommandLineTest, OtherCommands) {
  EXPECT_THAT(printed({"--version"}), HasSubstr("backend cpu"));
  EXPECT_THAT(printed({"--version", "schema"}), HasSubstr("backend cpu"));
  EXPECT_EQ(printed({"schema"}), printed({"schema", "report"}));
  EXPECT_NE(printed({"schema"}), printed({"schema", "doctor"}));
}

TEST(CommandLineTest, TheManualHasWhatCommandsDeclare) {
  const Command all = program();
  for (const Command& command : all.commands) {
    EXPECT_FALSE(command.help.empty()) << command.name;
    EXPECT_FALSE(command.examples.empty()) << command.name;
    const std::vector<OptionSpec> options = options_of(command);
    EXPECT_EQ(flags_of(options.front()), (std::vector<std::string>{"-h", "--help"}));
    for (const OptionSpec& option : options) {
      EXPECT_FALSE(option.help.empty()) << command.name << " " << option.name;
      EXPECT_NE(option.group, "");
    }
  }
}

TEST(CommandLineTest, HelpOfTheProgramAndOfACommand) {
  EXPECT_THAT(printed({"--help"}), HasSubstr("nearmetal help run"));
  const std::string help = printed({"run", "--help"});
  EXPECT_THAT(help, HasSubstr("nearmetal run [OPTIONS]"));
  for (const auto& [name, origin] : origins_of()) {
    std::string flag = "--" + name.substr(0, name.find("_seconds"));
    std::replace(flag.begin(), flag.end(), '_', '-');
    EXPECT_THAT(help, HasSubstr(flag)) << "help lists every option";
  }
}

}  // namespace
}  // namespace nearmetal
