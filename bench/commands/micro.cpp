#include "bench/commands/micro.h"

#include <algorithm>
#include <regex>

#include "bench/cli/defaults.h"
#include "bench/micro/find_probes.h"
#include "bench/micro/time_probes.h"
#include "bench/run/gpu_ranks.h"
#include "bench/run/together.h"
#include "models/networks/registry.h"

namespace nearmetal {
namespace {

class Filter {
 public:
  explicit Filter(const std::vector<std::string>& patterns) : patterns_(patterns) {
    for (const std::string& pattern : patterns) {
      try {
        expressions_.emplace_back(pattern);
      } catch (const std::regex_error&) {
        throw std::invalid_argument("PROBE: '" + pattern + "' is no regular expression");
      }
    }
  }

  // Preparing a step takes seconds: only where it was named.
  bool asks_for_step() const {
    return std::any_of(patterns_.begin(), patterns_.end(), [](const std::string& pattern) {
      return pattern.starts_with("step") || pattern.starts_with("^step");
    });
  }

  std::vector<Probe> choose(std::vector<Probe> probes) const {
    if (expressions_.empty()) return probes;
    std::erase_if(probes, [&](const Probe& probe) {
      return std::none_of(
          expressions_.begin(), expressions_.end(),
          [&](const std::regex& expression) { return std::regex_search(probe.name, expression); });
    });
    return probes;
  }

 private:
  std::vector<std::string> patterns_;
  std::vector<std::regex> expressions_;
};

// Of the device, for work in this precision.
Ceilings measured_ceilings(const std::vector<Probe>& probes, Precision precision) {
  const auto best = [&](const std::string& name, auto amount) {
    for (const Probe& probe : probes) {
      if (probe.name == name) return amount(probe) / median_seconds(probe, 5);
    }
    return 0.0;
  };
  return {
      best("copy/device", [](const Probe& probe) { return probe.bytes; }),
      best(std::string("product/") + to_string(precision), [](const Probe& p) { return p.flops; })};
}

void list_probes(const std::vector<Probe>& probes, std::ostream& out) {
  for (const Probe& probe : probes) out << probe.name << ": " << probe.work << '\n';
}

class Micro {
 public:
  Micro(const CommandLine& line, const Terminal& terminal, const BackendLoader& load, World& world)
      : line_(line),
        terminal_(terminal),
        load_(load),
        world_(world),
        filter_(line.micro.patterns),
        config_(line.run) {
    terminal_.quiet = config_.quiet || world.rank() > 0;
  }

  ExitCode run() {
    settle();
    TimingOptions options{.repetitions = static_cast<int>(line_.micro.repetitions),
                          .seconds = line_.micro.seconds,
                          .collective = world_.size() > 1};
    const std::vector<Probe> probes = chosen_probes(options.ceilings);
    if (probes.empty()) {
      throw std::invalid_argument(
          "no probe here has a name that matches (nearmetal micro --list; those of a step begin "
          "with step/)");
    }
    if (line_.micro.list) {
      if (world_.rank() == 0) list_probes(probes, terminal_.out);
      return ExitCode::ok;
    }
    const TimingForm form = world_.rank() > 0  ? TimingForm::none
                            : line_.micro.json ? TimingForm::json
                                               : TimingForm::table;
    const auto failures = time_probes(probes, options, form, terminal_.out);
    for (const std::string& failure : failures) {
      terminal_.err << "nearmetal: " << failure << std::endl;
    }
    return failures.empty() ? ExitCode::ok : ExitCode::run_failed;
  }

 private:
  void settle() {
    if (config_.batch == largest_that_fits) {
      throw std::invalid_argument("--batch auto is for run; give micro a number");
    }
    together(world_, [&] {
      choice_ = choose_device(config_.device);
      fill_defaults(config_, choice_);
      check_settings(config_, line_.origins);
      graph_ = build_network(config_.model, {config_.image_size, config_.classes});
      require_trainable(*graph_, config_);
      backend_ = &load_(to_string(config_.device));
      choose_gpu(config_, line_.origins, *backend_, world_);
      device_ = describe_device(*backend_, config_, choice_);
    });
    terminal_.remark("nearmetal: device " + std::string(to_string(choice_.device)) + " (" +
                     choice_.reason + "), " + device_.name);
  }

  std::vector<Probe> chosen_probes(Ceilings& ceilings) {
    const ProbeSource source{*backend_, config_, *graph_, device_, world_};
    const std::vector<Probe> machine = find_probes(source);
    if (!filter_.asks_for_step()) return filter_.choose(machine);
    if (world_.size() > 1) {
      throw std::invalid_argument("PROBE: those of a step are of one rank");
    }
    if (!line_.micro.list) ceilings = measured_ceilings(machine, *config_.precision);
    std::vector<Probe> chosen = filter_.choose(machine);
    std::vector<Warning> warnings;
    for (Probe& probe : filter_.choose(find_step_probes(source, warnings))) {
      chosen.push_back(std::move(probe));
    }
    for (const Warning& warning : warnings) terminal_.remark("warning: " + warning.text);
    return chosen;
  }

  const CommandLine& line_;
  Terminal terminal_;
  const BackendLoader& load_;
  World& world_;
  Filter filter_;
  RunConfig config_;
  DeviceChoice choice_;
  DeviceInfo device_;
  std::optional<Graph> graph_;
  Backend* backend_ = nullptr;
};

}  // namespace

ExitCode cmd_micro(const CommandLine& line, const Terminal& terminal, const BackendLoader& load) {
  const std::unique_ptr<World> world = join_world(0);
  return as_rank(*world, terminal.err, [&] { return Micro{line, terminal, load, *world}.run(); });
}

}  // namespace nearmetal
