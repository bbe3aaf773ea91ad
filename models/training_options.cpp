#include "models/training_options.h"

namespace nearmetal {

int64_t element_bytes(Precision precision) {
  return precision == Precision::fp16 || precision == Precision::bf16 ? 2 : 4;
}

Precision stored_type(Precision precision) {
  return precision == Precision::tf32 ? Precision::fp32 : precision;
}

}  // namespace nearmetal
