#include "comm/nccl_library.h"

#include "models/load_module.h"

namespace nearmetal {

Nccl& load_nccl() {
  static Nccl& nccl =
      *reinterpret_cast<NcclEntry>(load_module("nccl", "NCCL module", nccl_entry_name))();
  return nccl;
}

}  // namespace nearmetal
