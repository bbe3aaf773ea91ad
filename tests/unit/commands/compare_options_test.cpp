#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bench/cli/command_line.h"
#include "bench/commands/gate.h"
#include "bench/commands/program.h"
#include "tests/support/parse_options.h"
#include "tests/support/refusal.h"

namespace nearmetal {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

CompareRequest parse_compare(const std::vector<std::string>& words) {
  CompareForm form;
  parse_options(
      "compare", [&](Options& options) { add_compare_options(options, form); }, words);
  return form.request;
}

GateForm parse_gate(const std::vector<std::string>& words) {
  GateForm form;
  parse_options(
      "gate", [&](Options& options) { add_gate_options(options, form); }, words);
  return form;
}

std::string refusal_of_compare(const std::vector<std::string>& words) {
  return refusal_of([&] { parse_compare(words); });
}

TEST(CompareOptions, SidesOfAComparison) {
  const CompareRequest two = parse_compare({"a.json", "b.json#arm"});
  EXPECT_THAT(two.base, ElementsAre("a.json"));
  EXPECT_THAT(two.next, ElementsAre("b.json#arm"));
  EXPECT_EQ(two.options.form, ComparisonForm::sets);
  const CompareRequest sets = parse_compare({"--base", "a", "b", "--new", "c", "--json"});
  EXPECT_THAT(sets.base, ElementsAre("a", "b"));
  EXPECT_THAT(sets.next, ElementsAre("c"));
  EXPECT_TRUE(sets.json);
  const CompareRequest vm = parse_compare({"--vm", "v", "--bare", "a", "b"});
  EXPECT_THAT(vm.base, ElementsAre("a", "b"));
  EXPECT_THAT(vm.next, ElementsAre("v"));
  EXPECT_EQ(vm.options.form, ComparisonForm::vm);
  const CompareRequest pod = parse_compare({"--bare", "a", "--container", "p", "q"});
  EXPECT_THAT(pod.base, ElementsAre("a"));
  EXPECT_THAT(pod.next, ElementsAre("p", "q"));
  EXPECT_EQ(pod.options.form, ComparisonForm::container);
  EXPECT_THAT(refusal_of_compare({"--bare", "a", "--vm", "v", "--container", "p"}),
              HasSubstr("--vm and --container exclude each other"));
  EXPECT_THAT(refusal_of_compare({"--base", "a", "--container", "p"}),
              HasSubstr("--bare FILE... --container FILE..."));
  const GateForm gate = parse_gate({"main", "a", "b", "--fail-on", "any"});
  EXPECT_THAT(gate.request.base, ElementsAre("main"));
  EXPECT_THAT(gate.request.next, ElementsAre("a", "b"));
  EXPECT_EQ(gate.gate.fail_on, FailOn::any);
}

TEST(CompareOptions, Shares) {
  const auto margin = [](const std::string& text) {
    return parse_compare({"a", "b", "--margin", text}).options.rule.margin;
  };
  EXPECT_DOUBLE_EQ(margin("1.5%"), 0.015);
  EXPECT_DOUBLE_EQ(margin("0.03"), 0.03);
  for (const char* text : {"2", "0", "0%", "-1%", "51%", "%", "x%", "2%%", "nan"}) {
    EXPECT_THAT(refusal_of_compare({"a", "b", "--margin", text}), HasSubstr("--margin")) << text;
  }
}

TEST(CompareOptions, FieldsThatMayDifferAreChecked) {
  const auto with = [](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"a.json", "b.json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  };
  EXPECT_THAT(refusal_of_compare(with({"--allow-differ", "thraeds"})),
              HasSubstr("did you mean 'threads'?"));
  EXPECT_THAT(refusal_of_compare(with({"--allow-differ", "batch", "loss_scale.x"})),
              HasSubstr("'loss_scale.x'"));
  const std::string help = compare_command().examples;
  for (const std::string& field : fields_that_may_differ()) {
    EXPECT_THAT(parse_compare(with({"--allow-differ", field})).options.allow_differ,
                ElementsAre(field));
    EXPECT_THAT(help, HasSubstr(field.substr(0, field.find('.')))) << "help lists every field";
  }
  EXPECT_THAT(
      parse_compare(with({"--allow-differ", "libraries.cudnn", "kind"})).options.allow_differ,
      ElementsAre("libraries.cudnn", "kind"));
}

TEST(CompareOptions, FilesAfterAFlagThatTakesNamesAreNoNames) {
  for (const char* flag : {"--metric", "--allow-differ"}) {
    for (const char* file : {"a.json", "runs/a", "s#1x1"}) {
      EXPECT_THAT(refusal_of_compare({flag, file, "b.json"}),
                  HasSubstr("put " + std::string(flag) + " after the files"));
    }
  }
}

}  // namespace
}  // namespace nearmetal
