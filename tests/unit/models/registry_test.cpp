#include "models/networks/registry.h"

#include <gmock/gmock.h>

#include <set>
#include <stdexcept>

namespace nearmetal {
namespace {

TEST(Registry, EveryNetworkBuildsUnderItsName) {
  for (const Network& network : networks()) {
    const Graph graph = network.build({64, 10, 96});
    EXPECT_EQ(graph.name(), network.name);
    const bool images = network.sample == SampleUnit::image;
    EXPECT_EQ(graph.reads_tokens(), !images) << network.name;
    EXPECT_EQ(graph.classes(), images ? 10 : 96) << network.name;
    EXPECT_EQ(&find_network(network.name), &network);
    EXPECT_EQ(build_network(network.name, {64, 10}).parameter_count(), graph.parameter_count());
  }
}

TEST(Registry, NamesAreUnique) {
  const std::vector<std::string> names = network_names();
  EXPECT_EQ(names.size(), networks().size());
  EXPECT_EQ(std::set(names.begin(), names.end()).size(), names.size());
  EXPECT_EQ(names.front(), "resnet18");
}

TEST(Registry, RefusesAnUnknownName) {
  for (const std::string name : {"resnet51", "", "ResNet50"}) {
    EXPECT_THAT([&] { build_network(name); }, testing::ThrowsMessage<std::invalid_argument>(
                                                  testing::StrEq("unknown model '" + name + "'")));
  }
}

}  // namespace
}  // namespace nearmetal
