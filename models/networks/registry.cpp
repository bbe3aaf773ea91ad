#include "models/networks/registry.h"

#include <stdexcept>

#include "base/text.h"

namespace nearmetal {

// In convolutional.cpp and transformers.cpp.
std::vector<Network> bert();
std::vector<Network> resnet();
std::vector<Network> vgg();
std::vector<Network> vit();

const std::vector<Network>& networks() {
  static const std::vector<Network> all = [] {
    std::vector<Network> rows;
    for (const auto& family : {resnet(), vgg(), vit(), bert()}) append(rows, family);
    return rows;
  }();
  return all;
}

std::vector<std::string> network_names() { return transformed(networks(), &Network::name); }

const Network& find_network(const std::string& name) {
  const Network* found = find_in(networks(), name, &Network::name);
  if (found == nullptr) throw std::invalid_argument("unknown model '" + name + "'");
  return *found;
}

Graph build_network(const std::string& name, const NetworkOptions& options) {
  return find_network(name).build(options);
}

}  // namespace nearmetal
