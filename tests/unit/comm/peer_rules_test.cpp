#include "comm/layout/peer_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/layout/layout_json.h"

namespace nearmetal {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::vector<std::string> codes_of(const std::vector<Finding>& findings) {
  std::vector<std::string> codes;
  for (const Finding& found : findings) {
    EXPECT_NE(found.why, "") << found.code;
    EXPECT_NE(found.fix, "") << found.code;
    codes.push_back(found.code);
  }
  return codes;
}

// Two ranks of a job in one VM.
std::vector<std::string> codes_of_pair(const PeerDevice& device) {
  return codes_of(peer_findings("a job", {device, device}));
}

TEST(PeerRules, WholeVgpusOfOneVmArePeers) {
  for (const char* profile : {"A100-40C", "A100DX-80C", "H100XM-80C", "H200X-141C"}) {
    EXPECT_THAT(codes_of_pair({.host = "vm0", .node = "n", .vgpu_profile = profile}), IsEmpty());
  }
  EXPECT_THAT(codes_of_pair({.host = "vm0", .node = "n"}), IsEmpty()) << "GPUs passed through";
}

TEST(PeerRules, PartsOfGpusAreNone) {
  const PeerDevice part{.host = "vm0", .node = "n", .vgpu_profile = "A100-20C"};
  EXPECT_THAT(codes_of_pair(part), ElementsAre("vgpu_peers_part"));
  EXPECT_THAT(peer_findings("a job", {part}), IsEmpty()) << "one rank has no peer";
  EXPECT_EQ(peer_findings("a job", {part, part})[0].seen,
            "a job exchanges gradients among vGPUs A100-20C: those of a part of a GPU are no "
            "peers, A100-40C would be");
  EXPECT_THAT(codes_of_pair({.host = "vm0", .vgpu_profile = "A100D-40C"}),
              ElementsAre("vgpu_peers_part"))
      << "40 GB are half of this board";
  EXPECT_THAT(codes_of_pair({.host = "vm0", .vgpu_profile = "A100-3-20C"}),
              ElementsAre("vgpu_peers_mig"));
  EXPECT_THAT(codes_of_pair({.host = "vm0", .vgpu_profile = "L40S-48C"}),
              ElementsAre("vgpu_peers_unpublished"));
  EXPECT_THAT(codes_of_pair({.host = "vm0", .mig = true}), ElementsAre("mig_peers"));
}

TEST(PeerRules, NeitherOverPcieNorBetweenVms) {
  const PeerDevice whole{.host = "vm0", .node = "n", .vgpu_profile = "H100XM-80C"};
  PeerDevice other = whole;
  other.host = "vm1";
  EXPECT_THAT(codes_of(peer_findings("a job", {whole, other})),
              ElementsAre("vgpu_peers_between_vms"));
  other.node = "m";
  EXPECT_THAT(peer_findings("a job", {whole, other}), IsEmpty())
      << "there is a network between machines";
  PeerDevice apart = whole;
  apart.without_nvlink = true;
  EXPECT_THAT(codes_of(peer_findings("a job", {whole, apart})),
              ElementsAre("vgpu_peers_over_pcie"));
}

TEST(PeerRules, AreCheckedForALayout) {
  const LayoutFile file = layout_from_json(R"({
    "hosts": [{"name": "vm0", "node": "n", "gpus": 2}, {"name": "vm1", "node": "n", "gpus": 2}],
    "layouts": [
      {"name": "two", "jobs": [
        {"instances": [{"host": "vm0", "gpus": [0, 1]}], "share": {"way": "vgpu", "profile": "A100-20C"}},
        {"instances": [{"host": "vm1", "gpus": [0]}], "share": {"way": "vgpu", "profile": "A100-20C"}}]},
      {"name": "over both", "jobs": [
        {"instances": [{"host": "vm0", "gpus": [0]}, {"host": "vm1", "gpus": [0]}],
         "share": {"way": "vgpu", "profile": "A100-40C"}}]},
      {"shape": "1x1x2"}]})");
  std::vector<Placement> placements;
  for (const Layout& layout : file.layouts) placements.push_back(place(layout, file.hosts));
  const std::vector<Finding> findings = peer_findings(placements, file.hosts);
  EXPECT_THAT(codes_of(findings), ElementsAre("vgpu_peers_part", "vgpu_peers_between_vms"));
  EXPECT_THAT(findings[0].seen, HasSubstr("job 1 of 'two' exchanges"));
  EXPECT_THAT(findings[1].seen, HasSubstr("'over both' exchanges"));
  std::vector<Host> told = file.hosts;
  told[0].found = {{"GRID A100-20C"}, {"GRID A100-20C"}};
  EXPECT_THAT(codes_of(peer_findings({placements[2]}, told)), ElementsAre("vgpu_peers_part"))
      << "as the driver names them";
}

}  // namespace
}  // namespace nearmetal
