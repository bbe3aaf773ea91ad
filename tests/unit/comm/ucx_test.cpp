#include "comm/mpi/ucx.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nearmetal {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// Recorded: UCX 1.13.1 of Debian 12, on two interfaces of one machine.
constexpr const char* recorded =
    "#\n# UCP endpoint \n#\n#               peer: <no debug data>\n"
    "#                 lane[0]:  1:tcp/lo.0 md[1]                -> md[1]/tcp/sysdev[255] rma_bw#0 "
    "am am_bw#0\n"
    "#                 lane[1]:  2:tcp/eth0.0 md[1]              -> md[1]/tcp/sysdev[255] rma_bw#1 "
    "wireup\n#\n"
    "#                tag_send: 0..<egr/short>..93..<egr/bcopy>..8256..<rndv>..(inf)\n#\n"
    "#                  rma_bw: mds rndv_rkey_size 9\n#\n";

TEST(Ucx, TransportsAreThoseOfAllLanes) {
  EXPECT_THAT(ucx_transports(recorded), ElementsAre("tcp/lo", "tcp/eth0"));
  EXPECT_THAT(ucx_transports(""), IsEmpty());
}

// By ucp_ep_config_lane_info_str() of src/ucp/core/ucp_ep.c, and ucp_ep_config_cm_lane_info_str().
TEST(Ucx, DevicesOfRdmaKeepTheirPortAndInterfacesTheirDots) {
  const std::string of_1_18 =
      "#                 lane[0]:  4:rc_mlx5/mlx5_0:1.0 md[3]      -> md[3]/ib/sysdev[1] rma_bw#0 "
      "am "
      "am_bw#0\n"
      "#                 lane[1]:  4:rc_mlx5/mlx5_0:1.1 md[3]      -> md[3]/ib/sysdev[1] rma_bw#1\n"
      "#                 lane[2]:  9:ud_mlx5/mlx5_0:1.0 md[3]      -> md[3]/ib/sysdev[1] "
      "wireup{ud_mlx5/mlx5_1:1}\n"
      "#                 lane[3]:  2:tcp/eth0.100.0 md[1]          -> md[1]/tcp/sysdev[255]\n"
      "#                 lane[4]: cm rdmacm\n";
  EXPECT_THAT(ucx_transports(of_1_18),
              ElementsAre("rc_mlx5/mlx5_0:1", "ud_mlx5/mlx5_0:1", "tcp/eth0.100"));
}

TEST(Ucx, EarlierVersionsNameNoPath) {
  const std::string of_1_6 =
      "#                 lane[0]:  7:rc_verbs/hfi1_0:1 md[5]         -> md[5] am am_bw#0 wireup\n"
      "#                 lane[1]:  3:tcp/eth0 md[1] <proxy>          -> md[1]\n"
      "#                 lane[2]: proxy to lane[1]              -> md[1]\n";
  EXPECT_THAT(ucx_transports(of_1_6), ElementsAre("rc_verbs/hfi1_0:1", "tcp/eth0"));
}

TEST(Ucx, AnEndpointToTheProcessItselfSaysNothingOfOthers) {
  const std::string own =
      "#                 lane[0]:  0:self/memory0.0 md[0]          -> md[0]/self/sysdev[255] am\n"
      "#                 lane[1]:  5:cma/memory.0 md[4]            -> md[4]/cma/sysdev[255]\n";
  EXPECT_THAT(ucx_transports(own), IsEmpty());
}

}  // namespace
}  // namespace nearmetal
