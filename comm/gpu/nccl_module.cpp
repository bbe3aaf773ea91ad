// NCCL as the program sees it (comm/nccl_library.h).
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <iterator>

#include "comm/gpu/nccl_group.h"
#include "comm/nccl_library.h"
#include "models/load_module.h"

namespace nearmetal {
namespace {

class NcclLibrary : public Nccl {
 public:
  std::string version() const override { return nccl_version(); }

  void set_up(const NcclSetUp& set_up) override {
    if (set_up.algorithm != NcclAlgorithm::automatic) {
      setenv("NCCL_ALGO", to_string(set_up.algorithm), 1);
    }
    if (set_up.keep_log && std::getenv("NCCL_DEBUG") == nullptr) keep_log();
  }

  std::string log() override {
    std::string text;
    char piece[4096];
    for (ssize_t got = 0; (got = pread(log_, piece, sizeof(piece), std::ssize(text))) > 0;) {
      text.append(piece, got);
    }
    return text;
  }

  std::string new_group() override {
    ncclUniqueId id{};
    NM_CALL(ncclGetUniqueId(&id));
    return {id.internal, sizeof(id.internal)};
  }

  std::vector<Probe> probes(const std::string& group, int rank, int ranks, int gpu) override {
    return nccl_probes(group, rank, ranks, gpu);
  }

 private:
  // Into memory. NCCL would write to stdout if it could not open what is named here.
  void keep_log() {
    log_ = memfd_create("nccl-log", MFD_CLOEXEC);
    const std::string path = "/proc/self/fd/" + std::to_string(log_);
    if (log_ < 0 || access(path.c_str(), W_OK) != 0) return;
    setenv("NCCL_DEBUG_FILE", path.c_str(), 1);
    setenv("NCCL_DEBUG_SUBSYS", "INIT,GRAPH,TUNING", 1);
    setenv("NCCL_DEBUG", "INFO", 1);
  }

  int log_ = -1;
};

}  // namespace
}  // namespace nearmetal

NM_EXPORT nearmetal::Nccl* nearmetal_nccl() {
  static nearmetal::NcclLibrary library;
  return &library;
}
