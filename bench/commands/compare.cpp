#include "bench/commands/compare.h"

#include <array>
#include <stdexcept>

#include "bench/cli/parse_value.h"
#include "bench/commands/program.h"
#include "reports/compare/read_runs.h"

namespace nearmetal {
namespace {

constexpr const char* compare_examples = R"(
Examples:
  nearmetal compare old.json new.json
  nearmetal compare --base old*.json --new new*.json    several runs of each: needed for an interval
  nearmetal compare sweep.json#old sweep.json#new       two arms of one report, as of two builds
  nearmetal compare --bare metal*.json --vm vm*.json    a VM against bare metal
  nearmetal compare --bare metal*.json --container pod*.json   a container or pod against it

The verdict follows from the confidence interval of the difference: EQUIVALENT if it lies within the
margin, SLOWER or FASTER if it lies beyond it, else INCONCLUSIVE. The exit code is 0 whatever the
verdict, and 4 if runs differ in what must agree or have no row in common. If both sides ran with
--attribute, compare also says where the difference comes from.

)";

// One FILE of each side; BASE NEW.
void take_both(CompareForm& form, const std::vector<std::string>& places) {
  if (places.size() != 2) {
    throw std::invalid_argument("BASE and NEW take one report each, so two in all, not " +
                                std::to_string(places.size()) +
                                "; for several use --base FILE... --new FILE...");
  }
  form.both = {checked_path("BASE", places[0]), checked_path("NEW", places[1])};
}

void take_against_bare_metal(CompareForm& form, const Places& next, ComparisonForm claim) {
  form.request.base = form.bare;
  form.request.next = next;
  form.request.options.form = claim;
}

void choose_sides(CompareForm& form) {
  using Given = std::array<bool, 6>;
  CompareRequest& request = form.request;
  if (!form.vm.empty() && !form.container.empty()) {
    throw std::invalid_argument(
        "--vm and --container exclude each other: compare each with --bare in a separate call");
  }
  const Given given = {!form.both.empty(), !request.base.empty(), !request.next.empty(),
                       !form.bare.empty(), !form.vm.empty(),      !form.container.empty()};
  if (given == Given{false, true, true, false, false, false}) return;
  if (given == Given{true, false, false, false, false, false}) {
    request.base = {form.both[0]};
    request.next = {form.both[1]};
  } else if (given == Given{false, false, false, true, true, false}) {
    take_against_bare_metal(form, form.vm, ComparisonForm::vm);
  } else if (given == Given{false, false, false, true, false, true}) {
    take_against_bare_metal(form, form.container, ComparisonForm::container);
  } else {
    throw std::invalid_argument(
        "compare takes one of: BASE NEW; --base FILE... --new FILE...; --bare FILE... --vm "
        "FILE...; --bare FILE... --container FILE...");
  }
}

ExitCode run_compare(const CompareForm& form, const Context& context) {
  const CompareRequest& request = form.request;
  for (const Places& places : {request.base, request.next}) require_no_input(request, places);
  const std::vector<RunSet> sides =
      read_sides({request.base, request.next}, request.html.has_value());
  for (const RunSet& side : sides) remark_foreign(side, context.terminal);
  const Comparison comparison = compare(sides[0], sides[1], request.options);
  return publish({sides[0], sides[1], comparison}, request, context.terminal);
}

}  // namespace

void add_compare_options(Options& options, CompareForm& form) {
  CompareRequest& request = form.request;
  options.values("BASE NEW", " ", "Reports",
                 [&form](const std::vector<std::string>& places) { take_both(form, places); });
  options.paths("--base", "FILE...", request.base, "base reports, to compare with");
  options.paths("--new", "FILE...", request.next, "new reports");
  options.paths("--bare", "FILE...", form.bare, "reports of bare metal");
  options.paths("--vm", "FILE...", form.vm,
                "reports of a VM; also lists how the two machines differ");
  options.paths("--container", "FILE...", form.container,
                "reports of a container or pod, in the same way");
  add_rule_options(options, request.options);
  add_form_options(options, request);
  add_page_options(options, request);
  options.check([&form] { choose_sides(form); });
}

Command compare_command() {
  return make_command("compare", "Compare two sets of runs",
                      compare_examples + names_to_choose_from(), add_compare_options, run_compare);
}

}  // namespace nearmetal
