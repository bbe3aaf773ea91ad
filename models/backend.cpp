#include "models/backend.h"

#include "models/load_module.h"

namespace nearmetal {

Backend& load_backend(const std::string& name) {
  void* entry = load_module(name, name + " backend", backend_entry_name);
  return *reinterpret_cast<BackendEntry>(entry)();
}

}  // namespace nearmetal
