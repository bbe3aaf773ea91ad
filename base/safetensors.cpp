#include "base/safetensors.h"

#include <array>
#include <bit>
#include <functional>
#include <nlohmann/json.hpp>
#include <numeric>
#include <stdexcept>
#include <string_view>

#include "base/atomic_file.h"

namespace nearmetal {
namespace {

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

constexpr size_t alignment = 8;  // of the values, by padding the header with spaces

std::string_view bytes_of(const TensorView& tensor) {
  return std::visit(
      [](auto values) {
        return std::string_view(reinterpret_cast<const char*>(values.data()), values.size_bytes());
      },
      tensor.values);
}

void require_filled(const TensorView& tensor) {
  const int64_t elements =
      std::accumulate(tensor.dims.begin(), tensor.dims.end(), int64_t{1}, std::multiplies<>());
  const size_t values = std::visit([](auto span) { return span.size(); }, tensor.values);
  if (values != static_cast<size_t>(elements)) {
    throw std::logic_error(tensor.name + " has " + std::to_string(values) + " values, its shape " +
                           std::to_string(elements));
  }
}

std::string header_of(const std::vector<TensorView>& tensors,
                      const std::map<std::string, std::string>& metadata) {
  nlohmann::json header = {{"__metadata__", metadata}};
  size_t offset = 0;
  for (const TensorView& tensor : tensors) {
    require_filled(tensor);
    if (header.contains(tensor.name)) throw std::logic_error("two tensors named " + tensor.name);
    const size_t end = offset + bytes_of(tensor).size();
    const bool is_float = std::holds_alternative<std::span<const float>>(tensor.values);
    header[tensor.name] = {{"dtype", is_float ? "F32" : "I64"},
                           {"shape", tensor.dims},
                           {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = header.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  text.resize((text.size() + alignment - 1) / alignment * alignment, ' ');
  return text;
}

}  // namespace

void write_safetensors(const std::filesystem::path& path, const std::vector<TensorView>& tensors,
                       const std::map<std::string, std::string>& metadata, bool replace) {
  const std::string header = header_of(tensors, metadata);
  const auto length = std::bit_cast<std::array<char, 8>>(static_cast<uint64_t>(header.size()));
  std::vector<std::string_view> parts = {{length.data(), length.size()}, header};
  for (const TensorView& tensor : tensors) parts.push_back(bytes_of(tensor));
  write_file_atomically(path, parts, replace);
}

}  // namespace nearmetal
