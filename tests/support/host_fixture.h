// The files of a recorded or constructed system in a folder of their own.
#pragma once

#include <fstream>
#include <stdexcept>
#include <string>

#include "bench/environment/environment.h"
#include "tests/support/pci_fixture.h"
#include "tests/support/temporary_folder.h"

namespace nearmetal {

/// tests/data/hosts/NAME.txt, laid out. What its probes say lies under "probe", with what NVML
/// answers where there are PCI devices.
class HostFixture {
 public:
  explicit HostFixture(const std::string& name) {
    std::ifstream file(std::string(NM_TESTS_FOLDER) + "/data/hosts/" + name + ".txt");
    if (!file) throw std::runtime_error("there is no fixture " + name);
    std::string path;
    std::string content;
    const std::string head = "=== ", pci = "+++ pci ";
    PciFixture devices(folder_);
    for (std::string line; std::getline(file, line);) {
      if (line.starts_with(pci)) {
        devices.add(line.substr(pci.size()));
        continue;
      }
      if (!line.starts_with(head)) {
        content += line + "\n";
        continue;
      }
      if (!path.empty()) folder_.write(path, content);
      path = line.substr(head.size());
      content.clear();
    }
    folder_.write(path, content);
    folder_.write("probe/nvml", devices.nvml_answers());
  }

  const std::filesystem::path& root() const { return folder_.path(); }

  /// A number that its probes say, such as shared_memory_bytes.
  Maybe<int64_t> told(const std::string& name) const {
    std::ifstream file(root() / "probe" / name);
    int64_t number = 0;
    if (file >> number) return number;
    return Unknown{"the fixture does not say"};
  }

  SystemQueries queries() const {
    const auto said = [root = root()](const std::string& name) -> Maybe<std::string> {
      std::string line;
      std::ifstream file(root / "probe" / name);
      if (std::getline(file, line)) return line;
      return Unknown{"the fixture does not say"};
    };
    return {[said] { return said("cpuid_signature"); },
            [said](const char* name) { return said(name); },
            [](const char*) { return std::string(); }, [said] { return said("hyper_v_version"); }};
  }

 private:
  TemporaryFolder folder_;
};

}  // namespace nearmetal
