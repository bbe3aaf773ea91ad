#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bench/environment/system_files.h"
#include "tests/support/pci_fixture.h"

namespace nearmetal {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

constexpr int acs = 0x0d, ats = 0x0f, errors = 0x01;

class ConstructedPci : public testing::Test {
 protected:
  // A GPU below a switch below a root port, by its symbolic link.
  fs::path gpu() {
    const fs::path devices = root_ / "sys/bus/pci/devices";
    fs::create_directories(devices);
    fs::create_directories(root_ / gpu_folder_);
    std::error_code ignored;
    fs::create_directory_symlink(root_ / gpu_folder_, devices / "0000:1b:00.0", ignored);
    return devices / "0000:1b:00.0";
  }
  void configure(const std::string& folder, const std::string& bytes) {
    root_.write(folder + "/config", bytes);
  }

  const std::string port_ = "sys/devices/pci0000:15/0000:15:01.0";
  const std::string switch_ = port_ + "/0000:16:00.0";
  const std::string gpu_folder_ = switch_ + "/0000:1b:00.0";
  TemporaryFolder root_;
};

TEST_F(ConstructedPci, AtsIsOnWhereItsBitIsSet) {
  configure(gpu_folder_, constructed_configuration({{errors, 0}, {ats, 0x8000}}));
  EXPECT_TRUE(*ats_enabled(gpu()));
  configure(gpu_folder_, constructed_configuration({{errors, 0}, {ats, 0x001f}}));
  EXPECT_FALSE(*ats_enabled(gpu()));
  configure(gpu_folder_, constructed_configuration({{errors, 0xffff}}));
  EXPECT_FALSE(*ats_enabled(gpu())) << "it has no such capability";
}

TEST_F(ConstructedPci, OneBridgeThatRedirectsIsEnough) {
  configure(port_, constructed_configuration({{acs, 0x1d}}));
  configure(switch_, constructed_configuration({{errors, 0}, {acs, 0x11}}));
  EXPECT_TRUE(*acs_redirects(gpu()));
  configure(port_, constructed_configuration({{acs, 0x11}}));
  EXPECT_FALSE(*acs_redirects(gpu()));
}

TEST_F(ConstructedPci, WhatIsNotReadableIsUnknown) {
  configure(gpu_folder_, std::string(64, '\0'));
  configure(switch_, std::string(64, '\0'));
  EXPECT_THAT(ats_enabled(gpu()).reason, HasSubstr("0000:1b:00.0 is not readable"));
  EXPECT_THAT(acs_redirects(gpu()).reason, HasSubstr("0000:16:00.0 is not readable"));
}

TEST_F(ConstructedPci, InAGuestNoBridgeIsSeen) {
  root_.write("sys/devices/pci0000:00/0000:00:05.0/config", constructed_configuration({}));
  EXPECT_EQ(acs_redirects(root_ / "sys/devices/pci0000:00/0000:00:05.0").reason,
            "no bridge above it is seen from here");
}

TEST_F(ConstructedPci, AListThatLeadsIntoItselfEnds) {
  std::string bytes = constructed_configuration({{errors, 0}});
  bytes[0x102] = 0x01;
  bytes[0x103] = 0x10;  // next: 0x100
  configure(gpu_folder_, bytes);
  EXPECT_FALSE(*ats_enabled(gpu()));
}

}  // namespace
}  // namespace nearmetal
