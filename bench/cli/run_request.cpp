#include "bench/cli/run_request.h"

#include <algorithm>
#include <functional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "base/text.h"
#include "bench/cli/parse_value.h"
#include "comm/layout/gpu_profiles.h"
#include "models/networks/registry.h"
#include "reports/json/archive.h"
#include "reports/json/report_fields.h"

namespace nearmetal {
namespace {

// "1:25,75": the second of two parts, with three quarters of the multiprocessors.
GpuShare gpu_part_of(const std::string& flag, const std::string& text) {
  const size_t colon = text.find(':');
  if (colon == text.npos) {
    throw std::invalid_argument(flag + ": '" + text + "' is no INDEX:PERCENT,PERCENT,...");
  }
  GpuShare part;
  for (const std::string& percent : split(text.substr(colon + 1), ",")) {
    part.percents.push_back(parse_number<int64_t>(flag, percent, {1, 100}));
  }
  const double last = static_cast<double>(part.percents.size()) - 1;
  part.index = parse_number<int64_t>(flag, text.substr(0, colon), {0, last});
  return part;
}

template <class T>
std::string value_shown(const Setting& setting) {
  if (*setting.value != '\0') return setting.value;
  if constexpr (Named<T>) {
    return joined(choices_of<T>(setting), "|");
  } else {
    return is_time(setting) ? "TIME" : setting.takes_auto ? "N|auto" : "N";
  }
}

template <class T>
OptionSpec& add_option(Options& options, const Setting& setting, T& member) {
  const std::string flag = flag_of(setting);
  if constexpr (std::is_same_v<T, bool>) {
    return options.toggle(flag, member, setting.help);
  } else {
    OptionSpec& option =
        options.value(flag, value_shown<Held<T>>(setting), with_default(setting.help, member),
                      [&](const std::string& text) { parse_setting(setting, text, member); });
    if constexpr (std::is_same_v<T, std::string>) option.words = network_names;
    return option;
  }
}

// HOST:RANKS,HOST:RANKS,... as the host of each rank.
std::vector<std::string> hosts_of_ranks(const std::string& flag, const std::string& text) {
  std::vector<std::string> hosts;
  for (const std::string& part : split(text, ",")) {
    const size_t colon = std::min(part.rfind(':'), part.size() - 1);
    const auto ranks = parse_number<int64_t>(flag, part.substr(colon + 1), {1, 1e6});
    hosts.insert(hosts.end(), ranks, part.substr(0, colon));
  }
  return hosts;
}

void add_expect_options(Options& options, Expectation& expected) {
  const auto like = [](bool (*takes)(const std::string& text), const char* form) {
    return [=](const std::string& flag, const std::string& text) {
      if (!takes(text)) throw std::invalid_argument(flag + " takes " + form);
      return text;
    };
  };
  const auto is_vgpu_profile = [](const std::string& text) {
    return parse_vgpu_profile(text).has_value();
  };
  options.under(to_string(SettingGroup::evidence));
  options.text("--expect-gpu", "NAME", expected.gpu, "refuse GPUs without this in their name");
  options.text("--expect-uuid", "UUID", expected.uuid,
               "refuse GPUs and MIG devices of another UUID");
  options.value("--expect-mig", "PROFILE",
                "refuse all but MIG devices of this profile, such as 1g.18gb", expected.mig,
                like(is_mig_profile, "a MIG profile such as 1g.18gb"));
  options.value("--expect-vgpu", "PROFILE",
                "refuse all but vGPUs of this profile, such as A100-40C", expected.vgpu,
                like(is_vgpu_profile, "the profile of a vGPU, such as A100-40C or A100-3-20C"));
  options
      .value("--expect-environment", "KIND", "refuse machines that look like another kind",
             expected.environment, parse_choice<MachineKind>)
      .words = [] { return all_names<MachineKind>(); };
  options.value("--expect-link", "RATE[,CIDR]", "refuse networks of another rate, such as 10G",
                [&expected](const std::string& text) { expected.link = expected_link(text); });
}

}  // namespace

void add_settings(Options& options, RunRequest& request, unsigned command) {
  struct Entry {
    std::pair<SettingGroup, bool> place;
    std::function<void()> add;
  };
  std::vector<Entry> entries;
  visit_settings(
      [&](const Setting& setting, auto& member) {
        if ((setting.commands & command) == 0) return;
        entries.push_back({{setting.group, setting.last}, [&] {
                             OptionSpec& option = add_option(options, setting, member);
                             option.group = to_string(setting.group);
                             option.set = [&, set = option.set](const Options::Texts& texts) {
                               set(texts);
                               request.given.emplace_back(setting.name);
                             };
                           }});
      },
      request.config);
  std::ranges::stable_sort(entries, {}, &Entry::place);
  for (const Entry& entry : entries) entry.add();
}

LinkClaim expected_link(const std::string& text) {
  const size_t comma = text.find(',');
  LinkClaim link{.rate = text.substr(0, comma)};
  if (comma != text.npos) link.network = text.substr(comma + 1);
  const bool is_known =
      !link.network || is_network(*link.network) || is_ipv6_network(*link.network);
  if (!bits_per_second_of(link.rate) || !is_known) {
    throw std::invalid_argument(
        "--expect-link takes a rate in bits per second, such as 10G, and the network that it is "
        "of, if there are several: 10G,10.0.0.0/24 or 10G,fd00::/64");
  }
  return link;
}

void add_conducted_options(Options& options, RunRequest& request) {
  options.under("");
  options.toggle("--conducted", request.conducted, "");
  options.text("--arm", "", request.arm, "");
  options.value("--grid-point", "", "", [&request](const std::string& text) {
    request.grid_point = json::parsed<GridPoint>(text);
  });
  options.number("--sharers", "", request.sharing_jobs, {1, 1e6}, "");
  options.toggle("--through-mps", request.through_mps, "");
  options.value("--gpu-part", "", "", request.gpu_share, gpu_part_of);
}

void add_run_options(Options& options, RunRequest& request) {
  add_settings(options, request, in_run);
  add_expect_options(options, request.expected);
  options.under(to_string(SettingGroup::several_ranks));
  options.value("--join-timeout", "TIME",
                "how long to wait for a rank that does not join or respond [60s]",
                request.join_seconds, parse_duration);
  options.under(to_string(SettingGroup::files));
  options.toggle("--no-report", request.no_report, "write no report; print the table alone");
  options.check([&request] {
    if (request.no_report && (request.is_given("output") || request.is_given("json"))) {
      throw std::invalid_argument("--no-report: leave --output and --json, which ask for one, out");
    }
  });
  add_conducted_options(options, request);
  options.toggle("--emulated", request.emulated, "on emulated VMs, as a plan says");
  options.value("--expect-hosts", "", "", request.expected.hosts, hosts_of_ranks);
  options.text("--network", "", request.network, "");
  options.text("--expect-cpus", "", request.expected.cpus, "");
}

}  // namespace nearmetal
