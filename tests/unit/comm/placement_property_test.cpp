// Properties of any placement, tested on thousands that are made up.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <stdexcept>

#include "comm/launch/launch_plan.h"
#include "comm/layout/layout.h"
#include "comm/layout/placement.h"
#include "comm/layout/short_form.h"
#include "tests/support/words_of_ranks.h"

namespace nearmetal {
namespace {

class Dice {
 public:
  explicit Dice(uint64_t seed) : random_(seed) {}
  int64_t from(int64_t least, int64_t most) {
    return least + static_cast<int64_t>(random_() % static_cast<uint64_t>(most - least + 1));
  }
  bool coin() { return from(0, 1) == 1; }

 private:
  std::mt19937_64 random_;
};

std::vector<Host> made_up_hosts(Dice& dice) {
  const bool gpus = dice.coin();
  std::vector<Host> hosts(dice.from(1, 5));
  for (size_t i = 0; i < hosts.size(); ++i) {
    Host& host = hosts[i];
    host.name = "host" + std::to_string(i);
    if (dice.coin()) host.address = "10.0.0." + std::to_string(i);
    if (dice.coin()) host.node = "node" + std::to_string(dice.from(0, 1));
    if (gpus) host.gpus = dice.from(1, 8);
    if (gpus && dice.coin()) {
      host.numa = {{"0-15", {}}, {"16-31", {}}};
      for (int64_t gpu = 0; gpu < host.gpus; ++gpu) host.numa[gpu % 2].gpus.push_back(gpu);
    } else if (dice.coin()) {
      host.cpus = "0-" + std::to_string(dice.from(7, 40));
    }
  }
  return hosts;
}

Layout made_up_layout(Dice& dice) {
  Layout layout;
  std::string shape;
  for (int64_t job = dice.from(1, 3); job > 0; --job) {
    if (!shape.empty()) shape += "+";
    if (dice.coin()) shape += std::to_string(dice.from(1, 3)) + "*";
    shape += std::to_string(dice.from(1, 3)) + "x" + std::to_string(dice.from(1, 2)) + "x" +
             std::to_string(dice.from(1, 4));
  }
  layout.name = shape;
  layout.shape = shape;
  layout.emulate = dice.coin();
  layout.source = "made up";
  return layout;
}

const Host& host_of(const PlacedRank& rank, const std::vector<Host>& hosts) {
  const auto found = std::find_if(hosts.begin(), hosts.end(),
                                  [&](const Host& host) { return host.name == rank.host; });
  if (found == hosts.end()) throw std::logic_error("a rank is on no host");
  return *found;
}

void expect_sound_rank(const PlacedRank& rank, const Layout& layout, const Host& host) {
  EXPECT_EQ(rank.address, address_of(host));
  EXPECT_EQ(rank.gpu.has_value(), host.gpus > 0);
  EXPECT_EQ(rank.vm.has_value(), layout.emulate);
  const std::vector<int64_t> all = cpus_of(host);
  if (!rank.cpus.empty()) {
    EXPECT_TRUE(std::ranges::includes(all, parse_cpu_list(rank.cpus)));
  }
  const bool own_cpus = !all.empty() && (layout.emulate || host.gpus == 0);
  if (own_cpus) {
    EXPECT_NE(rank.cpus, "");
  }
  if (!rank.gpu) return;
  EXPECT_LT(*rank.gpu, host.gpus);
  // The GPU is where the rank looks for it.
  std::vector<int64_t> visible;
  std::string list = rank.variables.at("CUDA_VISIBLE_DEVICES") + ",";
  for (size_t comma; (comma = list.find(',')) != std::string::npos; list.erase(0, comma + 1)) {
    visible.push_back(std::stoll(list.substr(0, comma)));
  }
  EXPECT_EQ(visible.at(*rank.visible_gpu), *rank.gpu);
}

// Over all jobs that run at once.
void expect_nothing_shared(const Placement& placement) {
  std::set<std::pair<std::string, int64_t>> gpus;
  std::map<std::pair<std::string, int64_t>, std::string> cpus_of_vm;  // or of a rank without GPU
  std::map<std::string, std::string> vm_of_host_id;
  int64_t number = 0;
  for (const PlacedJob& job : placement.jobs) {
    for (const PlacedRank& rank : job.ranks) {
      ++number;
      if (rank.gpu) {
        EXPECT_TRUE(gpus.insert({rank.host, *rank.gpu}).second);
      }
      if (rank.vm && rank.gpu) cpus_of_vm[{rank.host, *rank.vm}] = rank.cpus;
      if (!rank.gpu) cpus_of_vm[{rank.host, number}] = rank.cpus;
      if (!rank.vm || !rank.gpu) continue;
      const std::string vm = rank.host + "/" + std::to_string(*rank.vm);
      const auto [found, first] = vm_of_host_id.emplace(rank.variables.at("NCCL_HOSTID"), vm);
      EXPECT_EQ(found->second, vm);
    }
  }
  std::set<std::pair<std::string, int64_t>> cpus;
  for (const auto& [owner, list] : cpus_of_vm) {
    for (const int64_t cpu : list.empty() ? std::vector<int64_t>{} : parse_cpu_list(list)) {
      EXPECT_TRUE(cpus.insert({owner.first, cpu}).second) << owner.first << " " << cpu;
    }
  }
}

void expect_shape(const PlacedJob& job, const JobShape& shape, const Layout& layout,
                  const std::vector<Host>& hosts) {
  ASSERT_EQ(static_cast<int64_t>(job.ranks.size()), shape.ranks());
  std::map<std::string, std::map<std::pair<std::string, int64_t>, int64_t>>
      ranks_of_vms;  // by node
  for (size_t i = 0; i < job.ranks.size(); ++i) {
    const PlacedRank& rank = job.ranks[i];
    EXPECT_EQ(rank.rank, static_cast<int64_t>(i));
    const Host& host = host_of(rank, hosts);
    expect_sound_rank(rank, layout, host);
    ++ranks_of_vms[node_of(host)][{rank.host, rank.vm.value_or(-1)}];
  }
  EXPECT_EQ(static_cast<int64_t>(ranks_of_vms.size()), shape.nodes);
  for (const auto& [node, vms] : ranks_of_vms) {
    EXPECT_EQ(static_cast<int64_t>(vms.size()), shape.vms);
    for (const auto& [vm, ranks] : vms) EXPECT_EQ(ranks, shape.gpus);
  }
}

// The command as mpirun will carry it out, read back: the host, variables, CPUs and --gpu of each
// rank in the order in which Open MPI maps by slot.
void expect_command_says_the_same(const PlacedJob& job) {
  const std::vector<std::string> command = launch_command(job, {}, {"run"});
  EXPECT_EQ(std::ranges::count(command, ":"), 0) << "contexts crash the mpirun of Debian 13";
  auto word = std::ranges::find(command, "--host");
  ASSERT_LT(word, command.end() - 4);
  std::vector<std::string> slots;  // the host of each
  std::string list = *++word + ",";
  for (size_t comma; (comma = list.find(',')) != std::string::npos; list.erase(0, comma + 1)) {
    const size_t colon = list.find(':');
    slots.insert(slots.end(), std::stoll(list.substr(colon + 1, comma)), list.substr(0, colon));
  }
  ASSERT_EQ(*++word, "-np");
  ASSERT_EQ(std::stoull(*++word), job.ranks.size());
  ASSERT_EQ(slots.size(), job.ranks.size());
  std::map<std::string, std::string> common;
  const auto add = [](const std::string& text, std::map<std::string, std::string>& variables) {
    variables[text.substr(0, text.find('='))] = text.substr(text.find('=') + 1);
  };
  while (*++word == "-x") add(*++word, common);
  const auto words = words_of_ranks({word, command.end()}, job.ranks.size());
  for (size_t rank = 0; rank < job.ranks.size(); ++rank) {
    const PlacedRank& placed = job.ranks[rank];
    EXPECT_EQ(slots[rank], placed.address);
    auto own = words[rank].begin();
    const auto end = words[rank].end();
    std::map<std::string, std::string> variables = common;
    if (own != end && *own == "env") {
      for (++own; own != end && own->find('=') != own->npos; ++own) add(*own, variables);
    }
    EXPECT_EQ(variables, placed.variables);
    std::string cpus;
    if (own != end && *own == "taskset") cpus = own[2], own += 3;
    EXPECT_EQ(cpus, placed.cpus);
    ASSERT_LT(own, end);
    EXPECT_EQ(*own, "nearmetal");
    const auto gpu = std::find_if(own, end, [](const auto& w) { return w.starts_with("--gpu="); });
    ASSERT_EQ(gpu != end, placed.vm && placed.gpu);
    if (gpu != end) {
      EXPECT_EQ(*gpu, "--gpu=" + std::to_string(*placed.visible_gpu));
    }
  }
}

// Ranks of a job see the same GPUs by their place on the host if they get no --gpu.
void expect_local_ranks(const PlacedJob& job) {
  std::map<std::string, int64_t> local_ranks;
  for (const PlacedRank& rank : job.ranks) {
    if (!rank.vm && rank.gpu) {
      EXPECT_EQ(*rank.visible_gpu, local_ranks[rank.host]++);
    }
  }
}

TEST(PlacementProperties, HoldForMadeUpLayouts) {
  int64_t placed = 0;
  for (uint64_t seed = 0; seed < 20000; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Dice dice(seed);
    const std::vector<Host> hosts = made_up_hosts(dice);
    const Layout layout = made_up_layout(dice);
    Placement placement;
    try {
      placement = place(layout, hosts);
    } catch (const std::invalid_argument&) {
      continue;
    }
    ++placed;
    const std::vector<JobShape> shapes = parse_short_form(*layout.shape);
    ASSERT_EQ(placement.jobs.size(), shapes.size());
    for (size_t job = 0; job < shapes.size(); ++job) {
      expect_shape(placement.jobs[job], shapes[job], layout, hosts);
      expect_command_says_the_same(placement.jobs[job]);
      expect_local_ranks(placement.jobs[job]);
    }
    expect_nothing_shared(placement);
    if (HasFailure()) return;
  }
  EXPECT_GT(placed, 3000);  // or the test would say little
}

// A single job is refused only where there are too few nodes for it, counted in another way.
TEST(PlacementProperties, NothingThatFitsIsRefused) {
  int64_t refused = 0;
  for (uint64_t seed = 0; seed < 20000; ++seed) {
    Dice dice(seed);
    std::vector<Host> hosts = made_up_hosts(dice);
    for (Host& host : hosts) host.cpus.reset();
    Layout layout = made_up_layout(dice);
    layout.shape = layout.shape->substr(layout.shape->find('*') + 1);
    layout.shape = layout.shape->substr(0, layout.shape->find('+'));
    const JobShape shape = parse_short_form(*layout.shape).front();
    std::map<std::string, int64_t> hosts_on_node;
    std::map<std::string, int64_t> vms_on_node;
    for (const Host& host : hosts) {
      ++hosts_on_node[node_of(host)];
      const int64_t vms = host.gpus == 0 ? shape.vms : host.gpus / shape.gpus;
      vms_on_node[node_of(host)] += layout.emulate ? vms : std::min<int64_t>(1, vms);
    }
    int64_t nodes = 0;
    for (const auto& [node, vms] : vms_on_node) {
      if (vms >= shape.vms && (!layout.emulate || hosts_on_node[node] == 1)) ++nodes;
    }
    bool accepted = true;
    try {
      place(layout, hosts);
    } catch (const std::invalid_argument&) {
      accepted = false;
      ++refused;
    }
    ASSERT_EQ(accepted, nodes >= shape.nodes) << "seed " << seed << ": " << *layout.shape;
  }
  EXPECT_GT(refused, 3000);
  EXPECT_LT(refused, 17000);
}

TEST(PlacementProperties, OrdersAreBlocksOfAllLayouts) {
  for (uint64_t seed = 0; seed < 500; ++seed) {
    Dice dice(seed);
    const auto layouts = static_cast<size_t>(dice.from(1, 9));
    const int64_t repeats = dice.from(1, 9);
    const auto launches = launch_order(layouts, repeats, true, static_cast<int64_t>(seed));
    EXPECT_EQ(launches, launch_order(layouts, repeats, true, static_cast<int64_t>(seed)));
    ASSERT_EQ(launches.size(), layouts * repeats);
    for (int64_t repeat = 0; repeat < repeats; ++repeat) {
      std::set<size_t> block;
      for (size_t i = 0; i < layouts; ++i) {
        const Launch& launch = launches[repeat * layouts + i];
        EXPECT_EQ(launch.repeat, repeat + 1);
        EXPECT_LT(launch.layout, layouts);
        block.insert(launch.layout);
      }
      EXPECT_EQ(block.size(), layouts);
    }
  }
}

// Every layout comes first about as often as any other: the order is no rotation.
TEST(PlacementProperties, OrdersAreUnbiased) {
  constexpr int64_t repeats = 6000;
  std::map<std::string, int64_t> orders;
  const auto launches = launch_order(3, repeats, true, 1);
  for (size_t i = 0; i < launches.size(); i += 3) {
    std::string order;
    for (size_t k = 0; k < 3; ++k) order += std::to_string(launches[i + k].layout);
    ++orders[order];
  }
  ASSERT_EQ(orders.size(), 6u);
  // Binomial: mean 1000, deviation 29; five deviations.
  for (const auto& [order, count] : orders) EXPECT_NEAR(count, 1000, 145) << order;
}

}  // namespace
}  // namespace nearmetal
