// Networks by their names in tf_cnn_benchmarks.
#pragma once

#include <cstdint>
#include <string>

namespace nearmetal {

struct TfModel {
  const char* name;  // there
  const char* ours;
  int64_t batch;  // there, of each GPU, unless one is asked for
};

/// Throws std::invalid_argument, which names --model, where nearmetal does not have that network.
const TfModel& find_tf_model(const std::string& name);

/// The name there of one of our networks, or ours where it has none.
std::string tf_model_name(const std::string& ours);

}  // namespace nearmetal
