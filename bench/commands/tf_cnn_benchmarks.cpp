#include <stdexcept>

#include "base/errors.h"
#include "base/text.h"
#include "bench/cli/command_line.h"
#include "bench/commands/program.h"
#include "bench/sweep/hosts_found.h"
#include "bench/tf_cnn_benchmarks/flags.h"
#include "bench/tf_cnn_benchmarks/translate.h"
#include "comm/layout/shell_text.h"
#include "comm/world.h"

namespace nearmetal {
namespace {

constexpr const char* tf_examples = R"(
Examples:
  nearmetal tf_cnn_benchmarks --model=resnet50 --batch_size=256 --use_fp16
  nearmetal tf_cnn_benchmarks --model=resnet50_v1.5 --num_gpus=4 --variable_update=replicated
  mpirun -n 4 nearmetal tf_cnn_benchmarks --model=resnet101 --variable_update=horovod
  nearmetal tf_cnn_benchmarks --model=resnet50 --print            nearmetal's own command for it
  nearmetal tf_cnn_benchmarks --model=resnet50 -- --output r.json --force

Flags are written as absl takes them. Defaults are those of tf_cnn_benchmarks: fp32, 100 batches,
the model's batch and classes, plain SGD with a weight decay of 4e-5. Images/s are the total of all
GPUs, printed once; the loss is without weight decay. The report is written as by run and sweep,
whose options may follow after "--". docs/tf_cnn_benchmarks.md has the details.)";

struct TfForm {
  TfFlagValues flags;
  std::vector<std::string> options;
};

std::string value_shown(const TfFlag& flag) {
  if (*flag.choices != '\0') return flag.choices;
  return flag.kind == TfFlagKind::boolean ? "true|false" : to_string(flag.kind);
}

void declare_tf_cnn_benchmarks(Options& options, TfForm& form) {
  for (const TfFlag& flag : tf_flags()) {
    const std::string name = flag.name;
    const std::string standard =
        *flag.standard == '\0' ? "" : std::string(" [") + flag.standard + "]";
    const auto take = [&flag, &form](const std::string& text) {
      check_tf_value(flag, text);
      form.flags.given[flag.name] = text;
    };
    options.value("--" + name, value_shown(flag), flag.meaning + standard, take).group =
        to_string(flag.becomes);
  }
  options.values("OPTION", "OPTION...", "after --: options of run, or of sweep for several GPUs",
                 form.options);
}

void print_report_so(std::ostream& out, const Report& report) {
  RunSet set;
  add_runs(set, report, "the report", true);
  print_tf_cnn_benchmarks(out, set);
}

// A sweep would take the CPUs instead.
void require_gpus(const TfTranslation& translation, const TfFlagValues& flags) {
  if (translation.words.front() != "sweep" || lower_case(flags.text("device")) == "cpu") return;
  if (this_machine().gpus > 0) return;
  throw NotSupported("there is no GPU here; --device=cpu takes the CPUs");
}

// Refusals name what the user has written.
template <class Do>
auto named_by_flags(const TfTranslation& translation, const Do& act) {
  try {
    return act();
  } catch (const NotAsExpected&) {
    throw;
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument(in_flags(translation, error.what()));
  }
}

ExitCode run_tf_cnn_benchmarks(const TfForm& form, const Context& context) {
  const TfTranslation translation = translated(form.flags, form.options, is_launched());
  std::vector<std::string> words = {"nearmetal"};
  words.insert(words.end(), translation.words.begin(), translation.words.end());
  const Action action =
      named_by_flags(translation, [&] { return parse_command_line(program(), words); });
  if (form.flags.is_true("print")) {
    context.terminal.remark(translation.remarks);
    context.terminal.out << shell_quoted(words) << '\n';
    return ExitCode::ok;
  }
  require_gpus(translation, form.flags);
  Context inner = context;
  inner.asked_by = {words, translation.remarks, print_report_so};
  return named_by_flags(translation, [&] { return action(inner); });
}

}  // namespace

Command tf_cnn_benchmarks_command() {
  Command command =
      make_command("tf_cnn_benchmarks", "Train what a command line of tf_cnn_benchmarks asks for",
                   tf_examples, declare_tf_cnn_benchmarks, run_tf_cnn_benchmarks);
  command.spelled_out = spelled_out;
  return command;
}

}  // namespace nearmetal
