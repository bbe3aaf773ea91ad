#include "reports/document/environment.h"

#include "models/control_groups.h"

namespace nearmetal {

Maybe<bool> shows(MachineKind kind, const Environment& environment) {
  const Virtualisation& found = environment.virtualisation;
  const auto is_other = [](const Maybe<std::string>& name, const char* none) {
    return name ? Maybe<bool>(*name != none) : Maybe<bool>(Unknown{name.reason});
  };
  const auto all_gpus_are = [&](const char* mode) -> Maybe<bool> {
    if (environment.gpus.empty()) return Unknown{"it has no GPU"};
    for (const Gpu& gpu : environment.gpus) {
      if (!gpu.virtualisation) return Unknown{gpu.virtualisation.reason};
      if (*gpu.virtualisation != mode) return false;
    }
    return true;
  };
  switch (kind) {
    case MachineKind::vm:
    case MachineKind::bare_metal:
      if (!found.machine) return Unknown{found.machine.reason};
      return *found.machine == kind;
    case MachineKind::container:
      return is_other(found.container, "none");
    case MachineKind::vgpu:
      return all_gpus_are("vgpu");
    case MachineKind::pass_through:
      return all_gpus_are("passthrough");
    case MachineKind::interposed:
      return is_other(found.interposer, "none");
    case MachineKind::confidential:
      break;
  }
  Maybe<bool> answer = is_other(found.confidential, "none");
  for (const Gpu& gpu : environment.gpus) {
    const Maybe<bool> of_gpu = is_other(gpu.confidential, "off");
    if (of_gpu.value == true || (answer.value == false && !of_gpu)) answer = of_gpu;
  }
  return answer;
}

std::string operating_system_of(const Environment& environment) {
  if (environment.boot_id) return "boot " + *environment.boot_id;
  return environment.machine_id.value.value_or("") + " " + environment.host_name + " " +
         environment.kernel;
}

int64_t usable_threads(const Environment& environment) {
  return threads_within(environment.usable_cpus, environment.cpu_quota.value);
}

Maybe<std::string> cpu_id_of(const Environment& environment) {
  const Processor& cpu = environment.processor;
  if (!cpu.vendor) return cpu.vendor;
  std::string id = *cpu.vendor;
  for (const Maybe<int64_t>* number : {&cpu.family, &cpu.model, &cpu.stepping}) {
    if (!*number) return Unknown{number->reason};
    id += " " + std::to_string(**number);
  }
  return id;
}

}  // namespace nearmetal
