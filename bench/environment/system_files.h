// Reads the small files in which the kernel and the distribution describe a system, and the devices
// on its PCI bus.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/value.h"
#include "reports/document/environment.h"

namespace nearmetal {

/// The first line without blanks at its end; at most 64 KiB of it.
Maybe<std::string> first_line(const std::filesystem::path& path);

/// The first line as a decimal number.
Maybe<int64_t> number_in(const std::filesystem::path& path);

/// The text after `key` and `separator` in the first line that starts with that key.
Maybe<std::string> value_in(const std::filesystem::path& path, std::string_view key,
                            char separator);

/// The CPUs that this process may use; none where the kernel does not say.
std::vector<int64_t> usable_cpus();

bool is_there(const std::filesystem::path& path);

/// The names in a folder, sorted; none where it cannot be read.
std::vector<std::string> names_in(const std::filesystem::path& folder);

/// The name of what a symbolic link points to.
Maybe<std::string> link_name(const std::filesystem::path& link);

/// The value times `unit`, where it is known.
template <class T, class Number>
Maybe<T> scaled(const Maybe<Number>& value, T unit) {
  return value ? Maybe<T>(unit * static_cast<T>(*value)) : Maybe<T>(Unknown{value.reason});
}

/// Whether the value is not 0, where it is known.
template <class Number>
Maybe<bool> truth(const Maybe<Number>& value) {
  return value ? Maybe<bool>(*value != 0) : Maybe<bool>(Unknown{value.reason});
}

// Devices on the PCI bus.

/// Its folder below /sys/bus/pci/devices; the kernel writes 0000:1b:00.0, NVML 00000000:1B:00.0.
std::filesystem::path pci_folder(const std::filesystem::path& root, const std::string& pci_id);

// `device` is such a folder, or a link to one.

/// The PCIe generation in a file such as current_link_speed, and the lanes in current_link_width.
/// Virtual functions tell neither.
Maybe<int64_t> link_generation_in(const std::filesystem::path& file);
Maybe<int64_t> link_width_in(const std::filesystem::path& file);

// Unknown where the extended configuration is not readable, as it is to root alone.

/// Whether it may keep translations of the IOMMU (ATS): without, its accesses to the memory of
/// peers take the way through the root complex.
Maybe<bool> ats_enabled(const std::filesystem::path& device);

/// Whether a bridge above it sends what peers send one another up to the root complex (P2P request
/// redirect of ACS).
Maybe<bool> acs_redirects(const std::filesystem::path& device);

/// The way between two devices, by the tree that the kernel shows.
Maybe<PciDistance> pci_distance(const std::filesystem::path& root,
                                const std::filesystem::path& device,
                                const std::filesystem::path& other);

/// Adds what the kernel tells of GPUs and NICs alike.
void add_pci_facts(PciDevice& found, const std::filesystem::path& device);

}  // namespace nearmetal
