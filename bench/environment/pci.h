// What the configuration space of PCI Express functions tells, as the kernel shows it.
#pragma once

#include <filesystem>

#include "reports/document/maybe.h"

namespace nearmetal {

// `device` is a folder of /sys/bus/pci/devices. Unknown where the extended configuration is not
// readable, as it is to root alone.

/// Whether it may keep translations of the IOMMU (ATS), without which its accesses to the memory of
/// peers take the way through the root complex.
Maybe<bool> ats_enabled(const std::filesystem::path& device);

/// Whether a bridge above it sends what peers send one another up to the root complex (P2P request
/// redirect of ACS).
Maybe<bool> acs_redirects(const std::filesystem::path& device);

}  // namespace nearmetal
