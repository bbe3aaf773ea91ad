#include "reports/document/environment.h"

#include "models/control_groups.h"

namespace nearmetal {

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
