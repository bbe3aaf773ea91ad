#include "bench/run/expected.h"

#include <stdexcept>

#include "bench/environment/virtualisation.h"

namespace nearmetal {
namespace {

class Expectations {
 public:
  Expectations(const Environment& environment, const Gpu* gpu)
      : environment_(environment), gpu_(gpu) {}

  void gpu(const std::string& part) const {
    const std::string& name = gpu_for("gpu " + part).name;
    if (name.find(part) == name.npos) refuse("gpu " + part, "an " + name);
  }

  void uuid(const std::string& uuid) const {
    const Maybe<std::string>& found = gpu_for("uuid " + uuid).uuid;
    if (!found) refuse("uuid " + uuid, "a GPU that does not tell its own: " + found.reason);
    if (*found != uuid) refuse("uuid " + uuid, "given this rank " + *found);
  }

  void mig(const std::string& profile) const {
    const Gpu& gpu = gpu_for("mig " + profile);
    const Maybe<std::string>& found = gpu.mig_profile;
    if (!found) refuse("mig " + profile, "given this rank the whole of an " + gpu.name);
    if (*found != profile) refuse("mig " + profile, "given this rank a MIG device " + *found);
  }

  void vgpu(const std::string& profile) const {
    const Gpu& gpu = gpu_for("vgpu " + profile);
    if (!gpu.virtualisation) {
      refuse("vgpu " + profile, "a GPU that may be a vGPU or not: " + gpu.virtualisation.reason);
    }
    if (*gpu.virtualisation != "vgpu") {
      refuse("vgpu " + profile,
             "no vGPU but an " + gpu.name + " (virtualisation: " + *gpu.virtualisation + ")");
    }
    if (!gpu.vgpu_profile) refuse("vgpu " + profile, "a vGPU, but " + gpu.vgpu_profile.reason);
    if (*gpu.vgpu_profile != profile) refuse("vgpu " + profile, "a vGPU " + *gpu.vgpu_profile);
  }

  void machine(MachineKind kind) const {
    const Virtualisation& found = environment_.virtualisation;
    const std::string environment = std::string("environment ") + to_string(kind);
    const bool by_container = kind == MachineKind::container;
    const std::string& unseen = by_container ? found.container.reason : found.machine.reason;
    if (by_container ? !found.container : !found.machine) {
      refuse(environment, "no sign of what it is: " + unseen);
    }
    const std::string why = contradiction(kind, found);
    if (!why.empty()) refuse(environment, "signs of another: " + why);
  }

 private:
  [[noreturn]] void refuse(const std::string& what, const std::string& why) const {
    throw std::invalid_argument("--expect-" + what + ": host " + environment_.host_name + " has " +
                                why);
  }
  const Gpu& gpu_for(const std::string& what) const {
    if (gpu_ == nullptr) refuse(what, "none for this rank, which computes on CPUs");
    return *gpu_;
  }

  const Environment& environment_;
  const Gpu* gpu_;
};

}  // namespace

void require_expected(const Expected& expected, const Environment& environment, const Gpu* gpu) {
  const Expectations look(environment, gpu);
  if (expected.gpu) look.gpu(*expected.gpu);
  if (expected.uuid) look.uuid(*expected.uuid);
  if (expected.mig) look.mig(*expected.mig);
  if (expected.vgpu) look.vgpu(*expected.vgpu);
  if (expected.environment) look.machine(*expected.environment);
}

}  // namespace nearmetal
