#include "models/cuda/device/chip.h"

#include <algorithm>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "models/cuda/device/check.h"
#include "models/errors.h"
#include "models/names.h"

namespace nearmetal::cuda {
namespace {

constexpr int oldest_capability = 75;  // the oldest that CUDA 13 compiles for
constexpr int ampere_capability = 80;

// Dense, in TFLOP/s, of all multiprocessors. 0: the chip has no such units.
struct DataSheet {
  const char* name;  // words of the GPU's name, all of which it must have
  int multiprocessors;
  double half, tf32, fp32;  // half: fp16, and bf16 where there is tf32
};

// From NVIDIA's data sheets of each product: "T4" (2019), "A100 80GB" (2022), "A30" (2022), "A10"
// (2021), "L4" (2023), "L40S" (2023), "H100" (2024), "H200" (2024), and "Blackwell" (2025, HGX
// B200), where those with sparsity are halved. Multiprocessors are CUDA cores there / cores of one.
// The first row that fits counts. Products of a chip differ (an H20 has a seventh of an H200's
// units), so that there is nothing to say of one that has no row.
constexpr DataSheet data_sheets[] = {
    {"T4", 40, 65, 0, 8.1},
    {"A100", 108, 312, 156, 19.5},
    {"A30", 56, 165, 82, 10.3},
    {"A10", 72, 125, 62.5, 31.2},
    {"L4", 58, 121, 60, 30.3},
    {"L40S", 142, 362, 183, 91.6},
    {"H100 PCIe", 114, 756.5, 378, 51},
    {"H100 NVL", 132, 835.5, 417.5, 60},
    {"H100", 132, 989.5, 494.5, 67},
    {"H200 NVL", 132, 835.5, 417.5, 60},
    {"H200", 132, 989.5, 494.5, 67},
    {"B200", 148, 2250, 1100, 75},
};

// "NVIDIA A100-SXM4-80GB": the words are apart by blanks and dashes.
std::vector<std::string_view> words_of(std::string_view text) {
  std::vector<std::string_view> words;
  while (!text.empty()) {
    const size_t end = std::min(text.find_first_of(" -"), text.size());
    if (end > 0) words.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return words;
}

const DataSheet* data_sheet_of(const std::string& name) {
  const std::vector<std::string_view> words = words_of(name);
  const auto has = [&](std::string_view word) {
    return std::ranges::find(words, word) != words.end();
  };
  const auto found = std::ranges::find_if(data_sheets, [&](const DataSheet& sheet) {
    return std::ranges::all_of(words_of(sheet.name), has);
  });
  return found == std::end(data_sheets) ? nullptr : &*found;
}

}  // namespace

std::map<Precision, double> peak_rates(const std::string& name, int multiprocessors) {
  const DataSheet* sheet = data_sheet_of(name);
  if (sheet == nullptr) return {};
  const double part = 1e12 * multiprocessors / sheet->multiprocessors;
  std::map<Precision, double> rates = {{Precision::fp16, sheet->half * part},
                                       {Precision::fp32, sheet->fp32 * part}};
  if (sheet->tf32 > 0) {
    rates[Precision::bf16] = sheet->half * part;
    rates[Precision::tf32] = sheet->tf32 * part;
  }
  return rates;
}

bool has_units(Precision precision, int capability) {
  const bool since_ampere = precision == Precision::bf16 || precision == Precision::tf32;
  return capability >= (since_ampere ? ampere_capability : oldest_capability);
}

int compute_capability(int gpu) {
  cudaDeviceProp properties{};
  NM_CALL(cudaGetDeviceProperties(&properties, gpu));
  return properties.major * 10 + properties.minor;
}

void require_units(Precision precision, const std::string& name, int capability) {
  if (has_units(precision, capability)) return;
  const std::string has = name + " has compute capability " + std::to_string(capability / 10) +
                          "." + std::to_string(capability % 10);
  if (capability < oldest_capability) {
    throw NotSupported(has + ", and kernels are there for 7.5 (Turing) and later");
  }
  throw std::invalid_argument(std::string(to_string(precision)) +
                              " needs tensor cores of compute capability 8.0 (Ampere) or later, "
                              "and " +
                              has + ": use fp16 or fp32");
}

void require_units(Precision precision, int gpu) {
  cudaDeviceProp properties{};
  NM_CALL(cudaGetDeviceProperties(&properties, gpu));
  require_units(precision, properties.name, compute_capability(gpu));
}

}  // namespace nearmetal::cuda
