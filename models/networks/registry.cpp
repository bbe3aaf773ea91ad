#include "models/networks/registry.h"

#include <algorithm>
#include <stdexcept>

namespace nearmetal {

// In convolutional.cpp and transformers.cpp.
std::vector<Network> bert();
std::vector<Network> resnet();
std::vector<Network> vgg();
std::vector<Network> vit();

const std::vector<Network>& networks() {
  static const std::vector<Network> all = [] {
    std::vector<Network> rows;
    for (const auto& family : {resnet(), vgg(), vit(), bert()}) {
      rows.insert(rows.end(), family.begin(), family.end());
    }
    return rows;
  }();
  return all;
}

std::vector<std::string> network_names() {
  std::vector<std::string> names;
  for (const Network& network : networks()) names.push_back(network.name);
  return names;
}

const Network& find_network(const std::string& name) {
  const auto found = std::ranges::find(networks(), name, &Network::name);
  if (found == networks().end()) throw std::invalid_argument("unknown model '" + name + "'");
  return *found;
}

Graph build_network(const std::string& name, const NetworkOptions& options) {
  return find_network(name).build(options);
}

}  // namespace nearmetal
