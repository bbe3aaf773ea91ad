#include "comm/layout/short_form.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <stdexcept>
#include <utility>

#include "base/text.h"

namespace nearmetal {
namespace {

constexpr size_t most_free = 16;  // all choices of so many are looked at

const GpuPlace& place_of(const Host& host, int64_t gpu) {
  static const GpuPlace unknown;
  return gpu < std::ssize(host.places) ? host.places[static_cast<size_t>(gpu)] : unknown;
}

int64_t connected_pairs(const Host& host, const std::vector<int64_t>& gpus) {
  int64_t pairs = 0;
  for (const int64_t gpu : gpus) {
    for (const int64_t other : place_of(host, gpu).nvlinks) {
      if (other > gpu && std::ranges::count(gpus, other) > 0) ++pairs;
    }
  }
  return pairs;
}

int64_t distance_to_nics(const Host& host, const std::vector<int64_t>& gpus) {
  constexpr int64_t unknown = static_cast<int64_t>(PciDistance::sys) + 1;
  int64_t distance = 0;
  for (const int64_t gpu : gpus) {
    const std::optional<PciDistance>& nearest = place_of(host, gpu).nearest_nic;
    distance += nearest ? static_cast<int64_t>(*nearest) : unknown;
  }
  return distance;
}

// The larger, the better.
std::pair<int64_t, int64_t> worth_of(const Host& host, const std::vector<int64_t>& gpus,
                                     bool network) {
  return {connected_pairs(host, gpus), network ? -distance_to_nics(host, gpus) : 0};
}

std::string nvlink_text(const Host& host, const std::vector<int64_t>& gpus) {
  const auto count = std::ssize(gpus);
  const int64_t pairs = connected_pairs(host, gpus), all = count * (count - 1) / 2;
  if (pairs == 0) return "";
  if (pairs == all) return "NVLink connects them all";
  return "NVLink connects " + std::to_string(pairs) + " of " + counted(all, "pair");
}

// "nearest NICs: mlx5_0 (PIX), mlx5_3 (PHB)"
std::string nic_text(const Host& host, const std::vector<int64_t>& gpus) {
  std::vector<std::string> nics;
  for (const int64_t gpu : gpus) {
    const GpuPlace& place = place_of(host, gpu);
    if (!place.nearest_nic) continue;
    add_new(nics, place.nic + " (" + to_string(*place.nearest_nic) + ")");
  }
  if (nics.empty()) return "";
  return (nics.size() > 1 ? "nearest NICs: " : "nearest NIC: ") + joined(nics);
}

constexpr int64_t most_jobs = 4096;

class Parser {
 public:
  explicit Parser(const std::string& text) : text_(text) {}

  std::vector<JobShape> parse() {
    do {
      add_term();
    } while (take('+'));
    if (position_ < text_.size()) fail("'+' or the end");
    return std::move(jobs_);
  }

 private:
  [[noreturn]] void fail(const std::string& expected) const {
    const std::string before = text_.substr(0, position_);
    throw std::invalid_argument("'" + text_ + "' is no layout: " + expected + " is expected " +
                                (before.empty() ? "first" : "after '" + before + "'") +
                                " (nodes x VMs x GPUs: 1x1x2, 2*(1x1x2), 1x1x2+1x1x1)");
  }

  bool take(char c) {
    if (position_ == text_.size() || text_[position_] != c) return false;
    ++position_;
    return true;
  }
  void require(char c) {
    if (!take(c)) fail(std::string("'") + c + "'");
  }

  int64_t number() {
    int64_t value = 0;
    const char* start = text_.data() + position_;
    const auto [stop, error] = std::from_chars(start, text_.data() + text_.size(), value);
    if (error != std::errc() || value < 1 || value > most_ranks) {
      fail("a number from 1 to " + std::to_string(most_ranks));
    }
    position_ += stop - start;
    return value;
  }

  // 2x1x4; `nodes` is read already.
  JobShape shape_from(int64_t nodes) {
    JobShape shape{.nodes = nodes};
    require('x');
    shape.vms = number();
    require('x');
    shape.gpus = number();
    // Each factor is small enough that the product of two does not overflow.
    if (nodes * shape.vms > most_ranks || shape.ranks() > most_ranks) {
      fail("a job of at most " + std::to_string(most_ranks) + " ranks");
    }
    return shape;
  }

  void add_term() {
    int64_t count = 1;
    bool bracketed = take('(');
    int64_t nodes = number();
    if (!bracketed && take('*')) {
      count = nodes;
      bracketed = take('(');
      nodes = number();
    }
    const JobShape job = shape_from(nodes);
    if (bracketed) require(')');
    if (static_cast<int64_t>(jobs_.size()) + count > most_jobs) {
      fail("a layout of at most " + std::to_string(most_jobs) + " jobs");
    }
    jobs_.insert(jobs_.end(), count, job);
  }

  const std::string& text_;
  size_t position_ = 0;
  std::vector<JobShape> jobs_;
};

// The rest of a host while jobs take their parts.
struct Stock {
  const Host* host = nullptr;
  int64_t used = 0;
  int64_t slots = 0;               // GPUs, or CPUs for a rank each
  std::vector<int64_t> gpus = {};  // the ones left

  int64_t free() const { return slots - used; }
};

// A machine with its VMs, or a host alone.
struct NodeStock {
  std::string name;
  std::vector<Stock> hosts;
  int64_t jobs = 0;
};

int64_t slots_of(const Host& host) {
  if (host.gpus > 0) return std::ssize(visible_gpus_of(host));
  const auto cpus = static_cast<int64_t>(cpus_of(host).size());
  return cpus > 0 ? cpus : std::numeric_limits<int64_t>::max();
}

// Hosts without GPUs count where no host has any.
std::vector<NodeStock> nodes_of(const std::vector<Host>& hosts) {
  const bool gpus = std::ranges::any_of(hosts, [](const Host& h) { return h.gpus > 0; });
  std::vector<NodeStock> nodes;
  for (const Host& host : hosts) {
    if (gpus && host.gpus == 0) continue;
    NodeStock* node = find_in(nodes, node_of(host), &NodeStock::name);
    if (node == nullptr) node = &nodes.emplace_back(NodeStock{node_of(host), {}, 0});
    node->hosts.push_back({&host, 0, slots_of(host), visible_gpus_of(host)});
  }
  return nodes;
}

Instance take(Stock& stock, int64_t slots, bool network) {
  Instance instance{stock.host->name, {}, 0};
  if (stock.host->gpus == 0) instance.ranks = slots;
  if (stock.host->gpus > 0) {
    instance.gpus = choose_gpus(*stock.host, stock.gpus, slots, network);
    std::erase_if(stock.gpus,
                  [&](int64_t gpu) { return std::ranges::count(instance.gpus, gpu) > 0; });
  }
  stock.used += slots;
  return instance;
}

// The hosts of a node that can be the VMs of a job, at most as many as it wants.
std::vector<Stock*> vms_of(NodeStock& node, const JobShape& shape) {
  std::vector<Stock*> hosts;
  for (Stock& stock : node.hosts) {
    if (stock.free() >= shape.gpus) hosts.push_back(&stock);
  }
  std::ranges::stable_sort(hosts, {}, &Stock::used);
  hosts.resize(std::min<size_t>(hosts.size(), shape.vms));
  return hosts;
}

bool fits(NodeStock& node, const JobShape& shape, bool emulate) {
  if (emulate) return node.hosts.size() == 1 && node.hosts[0].free() >= shape.vms * shape.gpus;
  return static_cast<int64_t>(vms_of(node, shape).size()) == shape.vms;
}

void take_from(NodeStock& node, const JobShape& shape, bool emulate, Job& job) {
  ++node.jobs;
  const bool network = !emulate && shape.nodes * shape.vms > 1;
  if (!emulate) {
    for (Stock* stock : vms_of(node, shape)) {
      job.instances.push_back(take(*stock, shape.gpus, network));
    }
  }
  for (int64_t vm = 0; emulate && vm < shape.vms; ++vm) {
    job.instances.push_back(take(node.hosts[0], shape.gpus, network));
  }
}

// "; the largest, vm0, has 2", where that is too few.
std::string largest_text(const std::vector<NodeStock>& nodes, int64_t needed) {
  const Stock* largest = nullptr;
  for (const NodeStock& node : nodes) {
    for (const Stock& stock : node.hosts) {
      if (largest == nullptr || stock.free() > largest->free()) largest = &stock;
    }
  }
  if (largest == nullptr || largest->free() >= needed) return "";
  return "; the largest, " + largest->host->name + ", has " + std::to_string(largest->free());
}

[[noreturn]] void refuse(const Layout& layout, const JobShape& shape, size_t job,
                         const std::vector<NodeStock>& nodes, int64_t found) {
  std::string text = layout.source + ": job " + std::to_string(job + 1) + " of " + *layout.shape +
                     " needs " + counted(shape.nodes, "node") + " with ";
  if (layout.emulate) {
    text += "one host that has " + counted(shape.vms * shape.gpus, "free GPU");
  } else {
    text += counted(shape.vms, "host") + " of " + counted(shape.gpus, "free GPU") +
            (shape.vms > 1 ? " each" : "");
  }
  text += " (or, without GPUs, as many CPUs), and there " +
          (found == 1 ? "is 1" : "are " + std::to_string(found));
  if (found == 0) text += largest_text(nodes, (layout.emulate ? shape.vms : 1) * shape.gpus);
  if (shape.nodes > 1) text += "; --hosts NAME:GPUS,... names other hosts";
  if (!layout.emulate && shape.vms > 1) {
    text += "; VMs are hosts of one \"node\", or parts of one host with \"emulate\": true";
  }
  throw std::invalid_argument(text);
}

}  // namespace

std::vector<int64_t> choose_gpus(const Host& host, const std::vector<int64_t>& free, int64_t count,
                                 bool network) {
  std::vector<int64_t> best(free.begin(), free.begin() + count);
  if (host.places.empty() || free.size() > most_free) return best;
  std::vector<bool> taken(free.size());
  std::fill_n(taken.begin(), count, true);
  while (std::prev_permutation(taken.begin(), taken.end())) {  // GPUs of low index come first
    std::vector<int64_t> other;
    for (size_t i = 0; i < free.size(); ++i) {
      if (taken[i]) other.push_back(free[i]);
    }
    if (worth_of(host, other, network) > worth_of(host, best, network)) best = other;
  }
  return best;
}

std::string choice_text(const Host& host, const std::vector<int64_t>& gpus, bool network) {
  std::vector<std::string> names, reasons;
  for (const int64_t gpu : gpus) names.push_back(std::to_string(gpu));
  for (const std::string& reason :
       {nvlink_text(host, gpus), network ? nic_text(host, gpus) : std::string()}) {
    if (!reason.empty()) reasons.push_back(reason);
  }
  if (reasons.empty()) return "";
  return (gpus.size() > 1 ? "GPUs " : "GPU ") + joined(names) + " of " + host.name + ": " +
         joined(reasons, "; ");
}

std::vector<JobShape> parse_short_form(const std::string& text) { return Parser(text).parse(); }

bool looks_like_short_form(const std::string& text) {
  return text.find_first_not_of("0123456789x*()+") == std::string::npos;
}

std::vector<Job> shape_jobs(const Layout& layout, const std::vector<Host>& hosts) {
  std::vector<NodeStock> nodes = nodes_of(hosts);
  std::vector<Job> jobs;
  for (const JobShape& shape : parse_short_form(*layout.shape)) {
    std::vector<NodeStock*> fitting;
    for (NodeStock& node : nodes) {
      if (fits(node, shape, layout.emulate)) fitting.push_back(&node);
    }
    if (static_cast<int64_t>(fitting.size()) < shape.nodes) {
      refuse(layout, shape, jobs.size(), nodes, static_cast<int64_t>(fitting.size()));
    }
    std::ranges::stable_sort(fitting, {}, &NodeStock::jobs);
    fitting.resize(shape.nodes);
    std::ranges::sort(fitting);  // ranks go along the hosts of the file
    Job& job = jobs.emplace_back();
    for (NodeStock* node : fitting) take_from(*node, shape, layout.emulate, job);
  }
  return jobs;
}

}  // namespace nearmetal
