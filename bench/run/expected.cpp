#include "bench/run/expected.h"

#include "bench/environment/environment.h"
#include "models/errors.h"

namespace nearmetal {
namespace {

class Expectations {
  using enum FailureCode;

 public:
  Expectations(const Environment& environment, const Gpu* gpu)
      : environment_(environment), gpu_(gpu) {}

  void gpu(const std::string& part) const {
    const std::string& name = gpu_for(expect_gpu, part).name;
    if (name.find(part) == name.npos) refuse(expect_gpu, part, "an " + name);
  }

  void uuid(const std::string& uuid) const {
    const Maybe<std::string>& found = gpu_for(expect_uuid, uuid).uuid;
    if (!found) refuse(expect_uuid, uuid, "a GPU that does not tell its own: " + found.reason);
    if (*found != uuid) refuse(expect_uuid, uuid, "given this rank " + *found);
  }

  void mig(const std::string& profile) const {
    const Gpu& gpu = gpu_for(expect_mig, profile);
    const Maybe<std::string>& found = gpu.mig_profile;
    if (!found) refuse(expect_mig, profile, "given this rank the whole of an " + gpu.name);
    if (*found != profile) refuse(expect_mig, profile, "given this rank a MIG device " + *found);
  }

  void vgpu(const std::string& profile) const {
    const Gpu& gpu = gpu_for(expect_vgpu, profile);
    if (!gpu.virtualisation) {
      refuse(expect_vgpu, profile, "a GPU that may be a vGPU or not: " + gpu.virtualisation.reason);
    }
    if (*gpu.virtualisation != "vgpu") {
      refuse(expect_vgpu, profile,
             "no vGPU but an " + gpu.name + " (virtualisation: " + *gpu.virtualisation + ")");
    }
    if (!gpu.vgpu_profile) refuse(expect_vgpu, profile, "a vGPU, but " + gpu.vgpu_profile.reason);
    if (*gpu.vgpu_profile != profile) refuse(expect_vgpu, profile, "a vGPU " + *gpu.vgpu_profile);
  }

  void machine(MachineKind kind) const {
    const Virtualisation& found = environment_.virtualisation;
    const auto refuse_kind = [&](const std::string& why) {
      refuse(expect_environment, to_string(kind), why);
    };
    const bool by_container = kind == MachineKind::container;
    const std::string& unseen = by_container ? found.container.reason : found.machine.reason;
    if (by_container ? !found.container : !found.machine) {
      refuse_kind("no sign of what it is: " + unseen);
    }
    const std::string why = contradiction(kind, found);
    if (!why.empty()) refuse_kind("signs of another: " + why);
  }

 private:
  [[noreturn]] void refuse(FailureCode code, const std::string& value,
                           const std::string& why) const {
    throw NotAsExpected(code, std::string("--") + to_string(code) + " " + value + ": host " +
                                  environment_.host_name + " has " + why);
  }
  const Gpu& gpu_for(FailureCode code, const std::string& value) const {
    if (gpu_ == nullptr) refuse(code, value, "none for this rank, which computes on CPUs");
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
