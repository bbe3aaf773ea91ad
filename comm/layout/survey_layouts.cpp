#include "comm/layout/survey_layouts.h"

#include <algorithm>
#include <bit>
#include <map>
#include <stdexcept>

#include "comm/layout/short_form.h"

namespace nearmetal {
namespace {

int64_t ranks_of(const Instance& instance) {
  return instance.gpus.empty() ? std::max<int64_t>(1, instance.ranks) : std::ssize(instance.gpus);
}

Instance all_of(const Host& host) {
  Instance instance{.host = host.name, .gpus = visible_gpus_of(host)};
  if (instance.gpus.empty()) instance.ranks = std::max<int64_t>(1, std::ssize(cpus_of(host)));
  return instance;
}

// One instance for each host.
std::vector<Instance> joined_by_host(const std::vector<Job>& jobs) {
  std::vector<Instance> all;
  for (const Job& job : jobs) {
    for (const Instance& instance : job.instances) {
      auto place = std::ranges::find(all, instance.host, &Instance::host);
      if (place == all.end()) place = all.insert(place, Instance{instance.host, {}});
      place->ranks += instance.gpus.empty() ? ranks_of(instance) : 0;
      for (const int64_t gpu : instance.gpus) {
        if (std::ranges::count(place->gpus, gpu) == 0) place->gpus.push_back(gpu);
      }
    }
  }
  for (Instance& instance : all) std::ranges::sort(instance.gpus);
  return all;
}

Layout layout_of(const std::string& name, std::vector<Job> jobs,
                 const std::map<std::string, std::string>& settings) {
  Layout layout;
  layout.name = layout.source = name;
  layout.jobs = std::move(jobs);
  layout.workload.texts = settings;
  return layout;
}

Layout each_alone(const std::string& name, const std::vector<Instance>& instances,
                  std::map<std::string, std::string> settings) {
  settings["update"] = "independent";
  return layout_of(name, {{.instances = instances}}, settings);
}

// All hosts at once: in a round, each GPU has one partner on its host.
std::vector<Job> jobs_of_round(const std::vector<Instance>& instances, size_t round) {
  std::vector<Job> jobs;
  for (const Instance& instance : instances) {
    if (round >= rounds_of(instance.gpus.size())) continue;
    for (const auto& [a, b] : pairs_of_round(instance.gpus.size(), round)) {
      jobs.push_back({{{.host = instance.host, .gpus = {instance.gpus[a], instance.gpus[b]}}}});
    }
  }
  return jobs;
}

// A GPU, or on CPUs a rank, of each of two hosts.
std::vector<Job> jobs_between(const std::vector<Instance>& instances, size_t round) {
  std::vector<Job> jobs;
  for (const auto& [a, b] : pairs_of_round(instances.size(), round)) {
    const Instance &one = instances[a], &other = instances[b];
    if (one.gpus.empty() != other.gpus.empty()) continue;
    if (one.gpus.empty()) {
      jobs.push_back({{{one.host, {}, 1}, {other.host, {}, 1}}});
    }
    for (size_t i = 0; i < std::min(one.gpus.size(), other.gpus.size()); ++i) {
      jobs.push_back({{{one.host, {one.gpus[i]}}, {other.host, {other.gpus[i]}}}});
    }
  }
  return jobs;
}

}  // namespace

size_t rounds_of(size_t players) { return players < 2 ? 0 : players - 1 + players % 2; }

std::vector<std::pair<size_t, size_t>> pairs_of_round(size_t players, size_t round) {
  const size_t turning = rounds_of(players);
  std::vector<std::pair<size_t, size_t>> pairs;
  if (turning == 0) return pairs;
  // The last one stays, of an odd number nobody: whoever would meet it waits.
  if (players % 2 == 0) pairs.emplace_back(round % turning, turning);
  for (size_t i = 1; i <= (turning - 1) / 2; ++i) {
    pairs.emplace_back((round + i) % turning, (round + turning - i) % turning);
  }
  for (auto& [a, b] : pairs) {
    if (a > b) std::swap(a, b);
  }
  std::ranges::sort(pairs);
  return pairs;
}

size_t rounds_of_hosts(size_t hosts) {
  constexpr size_t least = 3;
  if (hosts < 2) return 0;
  return std::min(rounds_of(hosts), std::max<size_t>(least, std::bit_width(hosts - 1)));
}

std::vector<Instance> surveyed_instances(const std::vector<Layout>& asked,
                                         const std::vector<Host>& hosts,
                                         const std::vector<std::string>& silent) {
  std::vector<Instance> all;
  if (asked.empty()) {
    for (const Host& host : hosts) all.push_back(all_of(host));
  } else if (asked.size() > 1) {
    throw std::invalid_argument("survey takes one layout, of all the GPUs that it is to look at");
  } else {
    const Layout& layout = asked.front();
    const std::vector<Job> jobs = layout.shape ? shape_jobs(layout, hosts) : layout.jobs;
    const bool shares =
        std::ranges::any_of(jobs, [](const Job& job) { return job.share || job.stress; });
    if (layout.emulate || shares) {
      throw std::invalid_argument(layout.source +
                                  ": survey looks at whole GPUs, without shares or emulated VMs");
    }
    const bool has_work =
        std::ranges::any_of(jobs, [](const Job& job) { return !job.workload.texts.empty(); });
    if (has_work || !layout.workload.texts.empty() || layout.executable) {
      throw std::invalid_argument(layout.source +
                                  ": survey gives all the same work: put it into the workload of "
                                  "the file or into options, and name no executable");
    }
    all = joined_by_host(jobs);
  }
  std::erase_if(all, [&](const Instance& instance) {
    return std::ranges::find(silent, instance.host) != silent.end();
  });
  int64_t ranks = 0;
  for (const Instance& instance : all) ranks += ranks_of(instance);
  if (ranks > 1) return all;
  throw std::invalid_argument(
      "survey compares GPUs with one another, and here is one: `nearmetal compare --reference` "
      "compares it with others of its kind");
}

std::vector<Layout> survey_layouts(const std::vector<Instance>& instances, SurveyedBits bits) {
  std::vector<Layout> layouts = {each_alone("each", instances, {})};
  if (bits != SurveyedBits::none) layouts[0].workload.texts["digest"] = "true";
  size_t rounds = 0;
  for (const Instance& instance : instances) {
    rounds = std::max(rounds, rounds_of(instance.gpus.size()));
  }
  for (size_t round = 0; round < rounds; ++round) {
    layouts.push_back(
        layout_of("pairs-" + std::to_string(round + 1), jobs_of_round(instances, round), {}));
  }
  for (size_t round = 0; round < rounds_of_hosts(instances.size()); ++round) {
    std::vector<Job> jobs = jobs_between(instances, round);
    if (jobs.empty()) continue;
    layouts.push_back(layout_of("hosts-" + std::to_string(round + 1), std::move(jobs), {}));
  }
  // Two are all and a pair at once.
  int64_t ranks = 0;
  for (const Instance& instance : instances) ranks += ranks_of(instance);
  const bool is_pair = layouts.size() == 2 && ranks == 2;
  if (!is_pair) layouts.push_back(layout_of("all", {{.instances = instances}}, {}));
  if (bits != SurveyedBits::more || instances[0].gpus.empty()) return layouts;
  for (const char* model : {"resnet50", "bert_base"}) {
    for (const char* precision : {"tf32", "bf16", "fp16"}) {
      layouts.push_back(each_alone(
          std::string("bits-") + model + "-" + precision, instances,
          {{"model", model}, {"precision", precision}, {"steps", "5"}, {"digest", "true"}}));
    }
  }
  return layouts;
}

}  // namespace nearmetal
