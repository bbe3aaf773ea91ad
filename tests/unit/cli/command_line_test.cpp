#include "bench/cli/command_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "reports/json/fields.h"
#include "reports/json/json.h"

namespace nearmetal {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Command = CommandLine::Command;

CommandLine parse(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "nearmetal");
  return parse_command_line(arguments);
}

std::string refusal_of_arguments(const std::vector<std::string>& arguments) {
  try {
    parse(arguments);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "";
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
  const CommandLine line = parse({"run"});
  EXPECT_EQ(line.command, Command::run);
  EXPECT_THAT(changed_settings(RunConfig{}, line.run), testing::IsEmpty());
  for (const auto& [name, origin] : line.origins) EXPECT_EQ(origin, Origin::standard) << name;
}

// An option exists in three places: member of RunConfig, line of the command line, field in JSON.
TEST(CommandLineTest, OptionsAndFieldsOfTheReportAgree) {
  std::vector<std::string> fields = config_names();
  std::vector<std::string> options;
  for (const auto& [name, origin] : parse({"run"}).origins) options.push_back(name);
  EXPECT_THAT(options, testing::UnorderedElementsAreArray(fields));
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
      {"steps", "--steps", "5"},
      {"duration_seconds", "--duration", "5"},
      {"warmup", "--warmup", "9"},
      {"input", "--input", "host"},
      {"launch", "--launch", "stream"},
      {"learning_rate", "--learning-rate", "0.25"},
      {"momentum", "--momentum", "0.5"},
      {"weight_decay", "--weight-decay", "0"},
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
      {"verify", "--verify"},
      {"profile", "--profile"},
      {"attribute", "--attribute"},
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
  EXPECT_EQ(flags.size(), config_names().size()) << "an option is missing in this test";
  for (const auto& flag : flags) {
    std::vector<std::string> arguments = {"run"};
    arguments.insert(arguments.end(), flag.begin() + 1, flag.end());
    const CommandLine line = parse(arguments);
    for (const auto& [name, origin] : line.origins) {
      EXPECT_EQ(origin, name == flag[0] ? Origin::flag : Origin::standard) << flag[0];
    }
    EXPECT_THAT(changed_settings(RunConfig{}, line.run), ElementsAre(flag[0]));
  }
}

TEST(CommandLineTest, Values) {
  EXPECT_EQ(parse({"run", "--batch", "auto"}).run.batch, largest_that_fits);
  EXPECT_EQ(parse({"run", "--batch=12"}).run.batch, 12);
  EXPECT_EQ(parse({"run", "--batch", "010"}).run.batch, 10) << "decimal, not octal";
  EXPECT_EQ(parse({"run", "--batch", "1", "--batch", "2"}).run.batch, 2) << "the last one counts";
  EXPECT_EQ(parse({"run", "--duration", "90"}).run.duration_seconds, 90);
  EXPECT_EQ(parse({"run", "--duration", "1.5s"}).run.duration_seconds, 1.5);
  EXPECT_EQ(parse({"run", "--duration", "2m"}).run.duration_seconds, 120);
  EXPECT_EQ(parse({"run", "--duration", "1h"}).run.duration_seconds, 3600);
  EXPECT_TRUE(parse({"run", "--loss-scale", "dynamic"}).run.loss_scale->dynamic);
  EXPECT_EQ(parse({"run", "--seed", "9007199254740991"}).run.seed, 9007199254740991);
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
                                                                {"--model", "vgg16"},
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
  EXPECT_THAT(refusal_of_arguments({"run", "--device", "gpu"}), HasSubstr("auto, cpu, cuda"));
  EXPECT_THAT(refusal_of_arguments({"run", "surplus"}), HasSubstr("unknown argument 'surplus'"));
}

TEST(CommandLineTest, IncompleteLines) {
  EXPECT_THAT(refusal_of_arguments({}), HasSubstr("a command is missing"));
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
  EXPECT_THAT(refusal_of_arguments({"baseline"}), HasSubstr("add, list or show"));
  EXPECT_THAT(refusal_of_arguments({"baseline", "frob"}), HasSubstr("'frob'"));
  EXPECT_THAT(refusal_of_arguments({"baseline", "add", "name"}), HasSubstr("FILE"));
}

TEST(CommandLineTest, OtherCommands) {
  EXPECT_EQ(parse({"--version"}).command, Command::version);
  EXPECT_EQ(parse({"schema"}).command, Command::schema);
  EXPECT_EQ(parse({"schema", "report"}).command, Command::schema);
  EXPECT_THAT(parse({"validate", "a.json", "b.json"}).validate_files,
              ElementsAre("a.json", "b.json"));
}

TEST(CommandLineTest, SidesOfAComparison) {
  const Judging two = parse({"compare", "a.json", "b.json#arm"}).judging;
  EXPECT_THAT(two.base, ElementsAre("a.json"));
  EXPECT_THAT(two.next, ElementsAre("b.json#arm"));
  EXPECT_FALSE(two.options.vm_form);
  const Judging sets = parse({"compare", "--base", "a", "b", "--new", "c", "--json"}).judging;
  EXPECT_THAT(sets.base, ElementsAre("a", "b"));
  EXPECT_THAT(sets.next, ElementsAre("c"));
  EXPECT_TRUE(sets.json);
  const Judging vm = parse({"compare", "--vm", "v", "--bare", "a", "b"}).judging;
  EXPECT_THAT(vm.base, ElementsAre("a", "b"));
  EXPECT_THAT(vm.next, ElementsAre("v"));
  EXPECT_TRUE(vm.options.vm_form);
  const Judging gate = parse({"gate", "main", "a", "b", "--fail-on", "any"}).judging;
  EXPECT_THAT(gate.base, ElementsAre("main"));
  EXPECT_THAT(gate.next, ElementsAre("a", "b"));
  EXPECT_EQ(gate.gate.fail_on, FailOn::any);
}

TEST(CommandLineTest, Shares) {
  const auto margin = [](const std::string& text) {
    return parse({"compare", "a", "b", "--margin", text}).judging.options.rule.margin;
  };
  EXPECT_DOUBLE_EQ(margin("1.5%"), 0.015);
  EXPECT_DOUBLE_EQ(margin("0.03"), 0.03);
  for (const char* text : {"2", "0", "0%", "-1%", "51%", "%", "x%", "2%%", "nan"}) {
    EXPECT_THAT(refusal_of_arguments({"compare", "a", "b", "--margin", text}),
                HasSubstr("--margin"))
        << text;
  }
}

TEST(CommandLineTest, FieldsThatMayDifferAreChecked) {
  const auto with = [](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"compare", "a.json", "b.json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  };
  EXPECT_THAT(refusal_of_arguments(with({"--allow-differ", "thraeds"})),
              HasSubstr("did you mean 'threads'?"));
  EXPECT_THAT(refusal_of_arguments(with({"--allow-differ", "batch", "loss_scale.x"})),
              HasSubstr("'loss_scale.x'"));
  const std::string help = parse({"compare", "--help"}).help;
  for (const std::string& field : fields_that_may_differ()) {
    EXPECT_THAT(parse(with({"--allow-differ", field})).judging.options.allow_differ,
                ElementsAre(field));
    EXPECT_THAT(help, HasSubstr(field.substr(0, field.find('.')))) << "help lists every field";
  }
  EXPECT_THAT(
      parse(with({"--allow-differ", "libraries.cudnn", "kind"})).judging.options.allow_differ,
      ElementsAre("libraries.cudnn", "kind"));
}

TEST(CommandLineTest, FilesAfterAFlagThatTakesNamesAreNoNames) {
  for (const char* flag : {"--metric", "--allow-differ"}) {
    for (const char* file : {"a.json", "runs/a", "s#1x1"}) {
      EXPECT_THAT(refusal_of_arguments({"compare", flag, file, "b.json"}),
                  HasSubstr("put " + std::string(flag) + " after the files"));
    }
  }
}

TEST(CommandLineTest, HelpOfTheProgramAndOfACommand) {
  const CommandLine program = parse({"--help"});
  EXPECT_EQ(program.command, Command::help);
  EXPECT_THAT(program.help, HasSubstr("nearmetal run --help"));
  const CommandLine run = parse({"run", "--help"});
  EXPECT_EQ(run.command, Command::help);
  EXPECT_THAT(run.help, HasSubstr("nearmetal run [OPTIONS]"));
  for (const auto& [name, origin] : run.origins) {
    std::string flag = "--" + name.substr(0, name.find("_seconds"));
    std::replace(flag.begin(), flag.end(), '_', '-');
    EXPECT_THAT(run.help, HasSubstr(flag)) << "help lists every option";
  }
}

}  // namespace
}  // namespace nearmetal
