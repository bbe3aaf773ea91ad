#include "bench/cli/output.h"
#include "bench/cli/process.h"
#include "bench/commands/program.h"
#include "reports/imports/published.h"
#include "reports/json/json.h"

namespace nearmetal {
namespace {

constexpr const char* import_examples = R"(
Examples:
  nearmetal import mlperf result_*.txt --source https://github.com/... --output dgx.json
  nearmetal import tf_cnn_benchmarks train.log --output train.json
  nearmetal import nccl-tests all_reduce.log --output links.json
  nearmetal import pairs published_pairs.json --side bare-metal --output metal.json
  nearmetal import pairs published_pairs.json --side vm --output vm.json
  nearmetal compare --bare metal.json --vm vm.json

The report has the kind "imported": compare takes such reports among themselves; gate, baseline and
rerun refuse them. It holds what the files say, with their names and SHA-256, and nothing else. A
truncated file ends with exit 5 and the number of the line. docs/imported.md says what is read.)";

struct ImportForm {
  ImportOptions options;
  OutputFile output;
};

template <ImportFormat format>
void add_import_options(Options& options, ImportForm& form) {
  form.options.format = format;
  if constexpr (format == ImportFormat::pairs) {
    options
        .value("--side", "bare-metal|vm", "side of the pairs to read", form.options.side,
               parse_choice<PublishedSide>)
        .required = true;
  }
  options.paths("FILE", "FILE...", form.options.files, "Published files; - is stdin").required =
      true;
  options.text("--source", "TEXT", form.options.origin, "URL where they were published");
  options.text("--arm", "NAME", form.options.arm,
               "name of one arm for all results [from the files]");
  add_output_options(options, form.output);
}

ExitCode run_import(const ImportForm& form, const Context& context) {
  require_no_input(form.output, form.options.files);
  Report report = published_report(form.options);
  report.tool = build_info();
  report.invocation.argv = context.argv;
  report.invocation.started_at = time_stamp();
  write_output(form.output, context.terminal, [&](std::ostream& out) { out << to_json(report); });
  return ExitCode::ok;
}

template <ImportFormat format>
Command import_of(const char* help) {
  return make_command(to_string(format), help, import_examples, add_import_options<format>,
                      run_import);
}

}  // namespace

Command import_command() {
  return make_group(
      "import", "Read published logs of other programs", import_examples,
      "mlperf, tf_cnn_benchmarks, nccl-tests or pairs",
      {import_of<ImportFormat::mlperf>(
           "Read logs of MLPerf Training, ResNet and BERT: lines of :::MLLOG"),
       import_of<ImportFormat::tf_cnn_benchmarks>("Read the output of tf_cnn_benchmarks"),
       import_of<ImportFormat::nccl_tests>("Read tables of nccl-tests"),
       import_of<ImportFormat::pairs>("Read a JSON table of runs on bare metal and in VMs")});
}

}  // namespace nearmetal
