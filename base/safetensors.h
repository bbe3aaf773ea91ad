// Tensors as a safetensors file, which PyTorch and others load.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <variant>
#include <vector>

namespace nearmetal {

/// A tensor in C order; the values belong to someone else and fill `dims` (none: a scalar).
struct TensorView {
  std::string name;
  std::vector<int64_t> dims;
  std::variant<std::span<const float>, std::span<const int64_t>> values;
};

/// Writes the format of https://huggingface.co/docs/safetensors: the length of a JSON header, the
/// header (dtype, shape and place of each tensor, `metadata` as texts), the values behind one
/// another. Atomic as write_file_atomically(). Throws OutputError; std::logic_error for values that
/// do not fill the dims, and for a name that was taken.
void write_safetensors(const std::filesystem::path& path, const std::vector<TensorView>& tensors,
                       const std::map<std::string, std::string>& metadata, bool replace);

}  // namespace nearmetal
