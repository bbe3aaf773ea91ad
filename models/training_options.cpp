#include "models/training_options.h"

#include <stdexcept>

namespace nearmetal {
namespace {

constexpr struct {
  Precision precision;
  const char* name;
} precisions[] = {{Precision::fp32, "fp32"},
                  {Precision::tf32, "tf32"},
                  {Precision::bf16, "bf16"},
                  {Precision::fp16, "fp16"}};

}  // namespace

const char* to_string(Precision precision) {
  for (const auto& known : precisions) {
    if (known.precision == precision) return known.name;
  }
  throw std::logic_error("unnamed Precision");
}

Precision precision_from(const std::string& name) {
  for (const auto& known : precisions) {
    if (known.name == name) return known.precision;
  }
  throw std::invalid_argument("unknown precision '" + name + "'");
}

int64_t element_bytes(Precision precision) {
  return precision == Precision::fp16 || precision == Precision::bf16 ? 2 : 4;
}

Precision stored_type(Precision precision) {
  return precision == Precision::tf32 ? Precision::fp32 : precision;
}

}  // namespace nearmetal
