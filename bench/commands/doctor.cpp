#include <algorithm>
#include <stdexcept>
#include <utility>

#include "base/text.h"
#include "base/text_table.h"
#include "bench/commands/program.h"
#include "bench/doctor/diagnose.h"
#include "bench/sweep/host_probe.h"
#include "bench/sweep/make_launch_plan.h"
#include "comm/layout/layout_json.h"
#include "comm/layout/short_form.h"
#include "reports/formats/nic_text.h"

namespace nearmetal {
namespace {

constexpr const char* doctor_examples = R"(
Examples:
  nearmetal doctor                                 driver, libraries, GPUs, NICs, MPI, limits, ...
  nearmetal doctor layout.json                     and what that file needs, on all its hosts
  nearmetal doctor --mig-config config.yaml#all-balanced   and whether MIG is as that file says
  nearmetal doctor --json | jq '.findings[] | select(.severity == "blocker")'

`nearmetal help vm` shows its place in comparing a VM with bare metal, in five steps.
The exit code is 8 if something keeps runs from starting, else 0. doctor changes nothing; it starts
short processes by mpirun where that is installed.)";

struct DoctorForm {
  std::optional<std::string> layout;      // file, whose hosts are tried
  std::optional<std::string> mig_config;  // FILE or FILE#LABEL
  bool json = false;
  bool host_facts = false;
};

void add_doctor_options(Options& options, DoctorForm& form) {
  options
      .path("LAYOUT", "[FILE]", form.layout,
            "layout (file or shipped) to check this machine against")
      .words = shipped_layouts;
  options.path("--mig-config", "FILE[#LABEL]", form.mig_config,
               "mig-parted file that the GPUs here must match");
  options.toggle("--json", form.json, "print findings, GPUs and NICs as JSON");
  options.under("");
  options.toggle(host_facts_flag, form.host_facts, "");
}

void print(std::ostream& out, const std::vector<Finding>& findings) {
  for (const Finding& finding : findings) {
    std::string severity = to_string(finding.severity);
    severity.resize(9, ' ');
    print_line(out, finding.seen, severity);
    if (!finding.why.empty()) print_line(out, finding.why, "           why: ");
    if (!finding.fix.empty()) print_line(out, finding.fix, "           fix: ");
  }
}

void print_tables(std::ostream& out, const Environment& machine) {
  std::vector<TitledTable> tables = nic_tables({machine}, true);
  if (!machine.gpus.empty()) tables.insert(tables.begin(), gpu_table(machine.gpus));
  if (!tables.empty()) out << '\n';
  for (const TitledTable& table : tables) {
    print_aligned(out, table);
    out << '\n';
  }
}

std::string layout_file(const std::string& word) {
  if (!looks_like_short_form(word)) return layout_place(word);
  throw std::invalid_argument(
      word + ": doctor takes a layout file or the name of a shipped one; `nearmetal plan '" + word +
      "'` says whether this machine has room for it");
}

ExitCode run_doctor(const DoctorForm& form, const Context& context) {
  const Terminal& terminal = context.terminal;
  if (form.host_facts) {
    terminal.out << to_json_line(own_host_facts()) << '\n';
    return ExitCode::ok;
  }
  LayoutFile layouts;  // with the hosts to try
  const std::string file = form.layout ? layout_file(*form.layout) : "";
  if (form.layout) layouts = read_layout(file);
  std::optional<MigConfig> mig_config;
  if (form.mig_config) mig_config = read_mig_config(*form.mig_config);
  Checkup checkup = collect_checkup(layouts);
  checkup.mig_config = std::move(mig_config);
  if (form.layout) checkup.layout = check_layout(file, checkup);
  const std::vector<Finding> findings = diagnose(checkup);
  const auto blockers = std::ranges::count(findings, Urgency::blocker, &Finding::severity);
  const ExitCode code = blockers > 0 ? ExitCode::not_supported : ExitCode::ok;
  const Environment& machine = checkup.environment;
  if (form.json) {
    terminal.out << findings_to_json(findings, machine, static_cast<int>(code));
    return code;
  }
  print(terminal.out, findings);
  print_tables(terminal.out, machine);
  terminal.out << "verdict: "
               << (blockers > 0 ? counted(blockers, "blocker") + " in the way of runs"
                                : std::string("nothing is in the way of runs"))
               << " (exit " << static_cast<int>(code) << ")\n";
  return code;
}

}  // namespace

Command doctor_command() {
  return make_command("doctor", "Check this machine before a run", doctor_examples,
                      add_doctor_options, run_doctor);
}

}  // namespace nearmetal
