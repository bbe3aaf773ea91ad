#include "reports/formats/nic_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "reports/formats/page.h"
#include "reports/formats/report_text.h"
#include "tests/support/made_up_runs.h"
#include "tests/support/sample_report.h"

namespace nearmetal {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

Environment machine(const std::string& host) {
  Environment environment = sample_report().environments[0];
  environment.host_name = host;
  Gpu& gpu = environment.gpus[0];
  gpu.name = "NVIDIA H200";
  gpu.pci_id = std::string("00000000:1B:00.0");
  RdmaDevice& nic = environment.rdma[0];
  nic.link_generation = nic.largest_link_generation = 5;
  nic.link_width = 8;
  nic.largest_link_width = 16;
  nic.numa_node = 0;
  return environment;
}

TEST(NicTables, ShowOfALinkWhatIsKnown) {
  Environment environment = machine("a");
  const auto text_of_link = [&] {
    std::ostringstream text;
    print_aligned(text, gpu_table(environment.gpus));
    return text.str();
  };
  Gpu& gpu = environment.gpus[0];
  gpu.largest_link_generation = 5;
  gpu.link_width = gpu.largest_link_width = 16;
  gpu.link_generation = Unknown{"not told"};
  EXPECT_THAT(text_of_link(), HasSubstr("  ? x16 of 5 x16  "));
  gpu.link_width = Unknown{"not told"};
  EXPECT_THAT(text_of_link(), HasSubstr("  ? of 5 x16  "));
}

TEST(NicTables, ShowDistanceGpuDirectAndPorts) {
  Environment environment = machine("vm0");
  Gpu second = environment.gpus[0];
  second.pci_id = std::string("00000000:43:00.0");
  second.nics = {{"mlx5_0", PciDistance::sys, GpuDirectRdma::none}};
  environment.gpus.push_back(second);
  const std::vector<TitledTable> tables = nic_tables({environment}, true);
  ASSERT_EQ(tables.size(), 2);
  EXPECT_EQ(tables[0].table.columns[1].title, "mlx5_0");
  EXPECT_THAT(tables[0].table.rows, ElementsAre(ElementsAre("0: H200 1B:00.0", "PIX GDR"),
                                                ElementsAre("1: H200 43:00.0", "SYS -")));
  EXPECT_THAT(tables[1].table.rows, ElementsAre(ElementsAre("mlx5_0", "ib0", "400 Gb/s InfiniBand",
                                                            "5 x8 of 5 x16", "0", "?", "?", "?")));
}

TEST(NicTables, GpusHaveTheWaysBetweenThem) {
  std::vector<Gpu> gpus(2, machine("vm0").gpus[0]);
  gpus[1].pci_id = std::string("00000000:43:00.0");
  gpus[0].peers = {{"00000000:43:00.0", true, true, true, PciDistance::phb}};
  gpus[1].peers = {{"00000000:1B:00.0", false, false, false, PciDistance::phb}};
  gpus[0].ats_capable = true;
  gpus[0].ats = false;
  gpus[0].acs_redirect = true;
  gpus[0].numa_node = -1;
  EXPECT_THAT(
      gpu_table(gpus).table.rows,
      ElementsAre(ElementsAre("0: H200 1B:00.0", "?", "-1", "off", "redirects", "X", "NVLink"),
                  ElementsAre("1: H200 43:00.0", "?", "?", "?", "?", "PHB -", "X")));
}

TEST(NicTables, WhatIsNotKnownIsAQuestionMark) {
  Environment environment = machine("vm0");
  environment.gpus[0].nics = {{"mlx5_0", Unknown{"?"}, Unknown{"?"}}};
  environment.rdma[0] = RdmaDevice{};
  environment.rdma[0].name = "mlx5_0";
  const std::vector<TitledTable> tables = nic_tables({environment});
  EXPECT_EQ(tables[0].table.rows[0][1], "? ?");
  EXPECT_THAT(tables[1].table.rows[0], ElementsAre("mlx5_0", "", "", "?", "?", "?", "?", "?"));
}

TEST(NicTables, HostsThatLookAlikeShareARow) {
  const std::vector<Environment> alike = {machine("vm0"), machine("vm1"), machine("vm0")};
  const auto rows = [](const std::vector<Environment>& hosts) {
    return nic_tables(hosts)[0].table.rows;
  };
  EXPECT_THAT(rows(alike), ElementsAre(ElementsAre("H200 1B:00.0", "PIX GDR")));
  std::vector<Environment> unlike = alike;
  unlike[1].gpus[0].nics[0].distance = PciDistance::sys;
  unlike.push_back(machine("vm2"));
  EXPECT_THAT(rows(unlike), ElementsAre(ElementsAre("vm0, vm2", "H200 1B:00.0", "PIX GDR"),
                                        ElementsAre("vm1", "H200 1B:00.0", "SYS GDR")));
}

TEST(NicTables, AreInReportsAsTextMarkdownAndHtml) {
  RunSet set = made_up_set({{"1x1", {1000, 1010, 990}}});
  const auto texts = [&] {
    std::ostringstream text, markdown, page;
    print_text(text, set);
    print_markdown(markdown, set);
    print_html(page, report_page({set, {}}));
    return std::vector{text.str(), markdown.str(), page.str()};
  };
  set.environments = {machine("vm0")};
  for (const std::string& text : texts()) {
    EXPECT_THAT(text, HasSubstr("PIX GDR"));
    EXPECT_THAT(text, HasSubstr("400 Gb/s InfiniBand"));
  }
  set.environments[0].gpus[0].nics.clear();
  set.environments[0].rdma.clear();
  for (const std::string& text : texts()) EXPECT_THAT(text, Not(HasSubstr("GPUs and NICs")));
}

}  // namespace
}  // namespace nearmetal
