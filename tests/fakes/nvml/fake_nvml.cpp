// Stands in for NVIDIA's management library: answers from the file that FAKE_NVML_ANSWERS names.
//
// Each line of the file is the name of a function, its GPU and further numbers if it takes any, and
// the answer: "nvmlDeviceGetPowerUsage 0 412000". A function without a line is not supported, as on
// a GPU that lacks it; "fail FUNCTION 0 STATUS" has a function end with a status. The file is read
// at every call, so that a test can change it.

#include <strings.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>

namespace {

enum : int { success = 0, not_supported = 3, not_found = 6, driver_not_loaded = 9 };

std::optional<std::string> answer(const std::string& question) {
  const char* path = std::getenv("FAKE_NVML_ANSWERS");
  std::ifstream file(path == nullptr ? "" : path);
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(question + " ")) return line.substr(question.size() + 1);
  }
  return std::nullopt;
}

// A handle is the number of the GPU and one more; MIG devices of GPU 0 are 100 and on, of GPU 1
// 200.
std::string number_of(const void* device) {
  return std::to_string(reinterpret_cast<intptr_t>(device) - 1);
}

// NOLINTNEXTLINE(performance-no-int-to-ptr): never followed
void* handle_of(int64_t number) { return reinterpret_cast<void*>(number + 1); }

template <class T>
int give(const std::string& question, T* value) {
  const auto text = answer(question);
  if (!text) return not_supported;
  *value = static_cast<T>(std::strtoull(text->c_str(), nullptr, 10));
  return success;
}

int give_text(const std::string& question, char* buffer, unsigned size) {
  const auto text = answer(question);
  if (!text) return not_supported;
  std::strncpy(buffer, text->c_str(), size);
  buffer[size - 1] = '\0';
  return success;
}

int give_pair(const std::string& question, unsigned* first, unsigned* second) {
  const auto text = answer(question);
  if (!text) return not_supported;
  char* rest = nullptr;
  *first = static_cast<unsigned>(std::strtoul(text->c_str(), &rest, 10));
  *second = static_cast<unsigned>(std::strtoul(rest, nullptr, 10));
  return success;
}

std::optional<int> fault_of(const std::string& function, unsigned index) {
  const auto status = answer("fail " + function + " " + std::to_string(index));
  return status ? std::optional(std::stoi(*status)) : std::nullopt;
}

}  // namespace

#define NUMBER(name)                                                \
  extern "C" int name(void* device, unsigned* value) {              \
    return give(std::string(#name " ") + number_of(device), value); \
  }
#define LARGE_NUMBER(name)                                          \
  extern "C" int name(void* device, unsigned long long* value) {    \
    return give(std::string(#name " ") + number_of(device), value); \
  }
#define NUMBER_OF(name)                                                                           \
  extern "C" int name(void* device, unsigned which, unsigned* value) {                            \
    return give(std::string(#name " ") + number_of(device) + " " + std::to_string(which), value); \
  }
#define TEXT(name)                                                              \
  extern "C" int name(void* device, char* buffer, unsigned size) {              \
    return give_text(std::string(#name " ") + number_of(device), buffer, size); \
  }
#define PAIR(name)                                                               \
  extern "C" int name(void* device, unsigned* first, unsigned* second) {         \
    return give_pair(std::string(#name " ") + number_of(device), first, second); \
  }

extern "C" int nvmlInit_v2() {
  if (const auto status = fault_of("nvmlInit_v2", 0)) return *status;
  return answer("nvmlDeviceGetCount_v2") ? success : driver_not_loaded;
}
extern "C" int nvmlShutdown() { return success; }
extern "C" const char* nvmlErrorString(int status) {
  return status == not_supported       ? "Not Supported"
         : status == driver_not_loaded ? "Driver Not Loaded"
                                       : "Unknown Error";
}
extern "C" int nvmlSystemGetDriverVersion(char* buffer, unsigned size) {
  return give_text("nvmlSystemGetDriverVersion", buffer, size);
}
extern "C" int nvmlDeviceGetCount_v2(unsigned* count) {
  return give("nvmlDeviceGetCount_v2", count);
}
extern "C" int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  unsigned count = 0;
  nvmlDeviceGetCount_v2(&count);
  if (index >= count) return not_found;
  if (const auto status = fault_of("nvmlDeviceGetHandleByIndex_v2", index)) return *status;
  *device = handle_of(index);
  return success;
}
TEXT(nvmlDeviceGetName)
TEXT(nvmlDeviceGetUUID)
TEXT(nvmlDeviceGetSerial)
TEXT(nvmlDeviceGetVbiosVersion)

// 16 bytes, 5 numbers and 32 bytes, as nvmlPciInfo_t; the last two numbers may follow the address.
extern "C" int nvmlDeviceGetPciInfo_v3(void* device, char* info) {
  const auto text = answer("nvmlDeviceGetPciInfo_v3 " + number_of(device));
  if (!text) return not_supported;
  const size_t space = std::min(text->find(' '), text->size());
  std::memset(info, 0, 68);
  text->copy(info + 36, std::min<size_t>(space, 31));
  char* rest = nullptr;
  const auto id = static_cast<unsigned>(std::strtoul(text->c_str() + space, &rest, 16));
  const auto board = static_cast<unsigned>(std::strtoul(rest, nullptr, 16));
  std::memcpy(info + 28, &id, sizeof id);
  std::memcpy(info + 32, &board, sizeof board);
  return success;
}
extern "C" int nvmlDeviceGetHandleByPciBusId_v2(const char* id, void** device) {
  unsigned count = 0;
  nvmlDeviceGetCount_v2(&count);
  for (unsigned i = 0; i < count; ++i) {
    std::string own = answer("nvmlDeviceGetPciInfo_v3 " + std::to_string(i)).value_or("");
    own.resize(std::min(own.find(' '), own.size()));
    const std::string given = id;  // the domain may have 4 digits or 8
    if (own.size() < 12 || given.size() < 12) continue;
    if (strcasecmp(own.c_str() + own.size() - 12, given.c_str() + given.size() - 12) != 0) continue;
    *device = handle_of(i);
    return success;
  }
  return not_found;
}

NUMBER(nvmlDeviceGetCurrPcieLinkGeneration)
NUMBER(nvmlDeviceGetCurrPcieLinkWidth)
NUMBER(nvmlDeviceGetMaxPcieLinkGeneration)
NUMBER(nvmlDeviceGetMaxPcieLinkWidth)
NUMBER(nvmlDeviceGetPersistenceMode)
NUMBER(nvmlDeviceGetComputeMode)
NUMBER(nvmlDeviceGetEnforcedPowerLimit)
NUMBER(nvmlDeviceGetPowerManagementDefaultLimit)
NUMBER(nvmlDeviceGetPowerUsage)
NUMBER(nvmlDeviceGetVirtualizationMode)
NUMBER(nvmlDeviceGetMaxMigDeviceCount)
NUMBER(nvmlDeviceGetRetiredPagesPendingStatus)
LARGE_NUMBER(nvmlDeviceGetTotalEnergyConsumption)
LARGE_NUMBER(nvmlDeviceGetCurrentClocksEventReasons)
NUMBER_OF(nvmlDeviceGetClockInfo)
NUMBER_OF(nvmlDeviceGetMaxClockInfo)
NUMBER_OF(nvmlDeviceGetApplicationsClock)
NUMBER_OF(nvmlDeviceGetTemperature)
NUMBER_OF(nvmlDeviceGetNvLinkState)
NUMBER_OF(nvmlDeviceGetPcieThroughput)
PAIR(nvmlDeviceGetEccMode)
PAIR(nvmlDeviceGetMigMode)

extern "C" int nvmlSystemGetConfComputeState(unsigned* state) {
  state[0] = 2;  // production
  return give_pair("nvmlSystemGetConfComputeState", &state[1], &state[2]);
}

extern "C" int nvmlDeviceGetUtilizationRates(void* device, unsigned* shares) {
  return give_pair("nvmlDeviceGetUtilizationRates " + number_of(device), &shares[0], &shares[1]);
}

extern "C" int nvmlDeviceGetBAR1MemoryInfo(void* device, unsigned long long* sizes) {
  return give("nvmlDeviceGetBAR1MemoryInfo " + number_of(device), &sizes[0]);
}
extern "C" int nvmlDeviceGetMemoryInfo(void* device, unsigned long long* sizes) {
  return give("nvmlDeviceGetMemoryInfo " + number_of(device), &sizes[2]);
}
extern "C" int nvmlDeviceGetRemappedRows(void* device, unsigned* corrected, unsigned* uncorrected,
                                         unsigned* pending, unsigned* failed) {
  *corrected = *uncorrected = *failed = 0;
  return give("nvmlDeviceGetRemappedRows " + number_of(device), pending);
}
extern "C" int nvmlDeviceGetTotalEccErrors(void* device, unsigned type, unsigned counter,
                                           unsigned long long* count) {
  return give("nvmlDeviceGetTotalEccErrors " + number_of(device) + " " + std::to_string(type) +
                  " " + std::to_string(counter),
              count);
}
extern "C" int nvmlDeviceGetNvLinkErrorCounter(void* device, unsigned link, unsigned counter,
                                               unsigned long long* count) {
  return give("nvmlDeviceGetNvLinkErrorCounter " + number_of(device) + " " + std::to_string(link) +
                  " " + std::to_string(counter),
              count);
}
extern "C" int nvmlDeviceGetP2PStatus(void* device, void* other, unsigned capability,
                                      unsigned* status) {
  return give("nvmlDeviceGetP2PStatus " + number_of(device) + " " + number_of(other) + " " +
                  std::to_string(capability),
              status);
}
// Processes: how many, with numbers from 100000 on.
extern "C" int nvmlDeviceGetComputeRunningProcesses_v3(void* device, unsigned* count, char* infos) {
  constexpr int insufficient_size = 7;
  constexpr size_t info_bytes = 24;
  unsigned there = 0;
  const int status = give("nvmlDeviceGetComputeRunningProcesses_v3 " + number_of(device), &there);
  if (status != success) return status;
  const unsigned room = *count;
  *count = there;
  if (there > room) return insufficient_size;
  for (unsigned i = 0; i < there; ++i) {
    const unsigned pid = 100000 + i;
    std::memcpy(infos + i * info_bytes, &pid, sizeof pid);
  }
  return success;
}
extern "C" int nvmlDeviceGetMigDeviceHandleByIndex(void* gpu, unsigned index, void** device) {
  const int64_t number = 100 * reinterpret_cast<intptr_t>(gpu) + index;
  if (!answer("nvmlDeviceGetUUID " + std::to_string(number))) return not_found;
  *device = handle_of(number);
  return success;
}
extern "C" int nvmlDeviceGetHandleByUUID(const char* uuid, void** device) {
  for (int64_t number = 0; number < 1000; ++number) {
    if (answer("nvmlDeviceGetUUID " + std::to_string(number)) != std::string(uuid)) continue;
    *device = handle_of(number);
    return success;
  }
  return not_found;
}
// 8 numbers and a size in MiB: multiprocessors first, slices of the GPU seventh.
extern "C" int nvmlDeviceGetAttributes_v2(void* device, unsigned* numbers) {
  const auto text = answer("nvmlDeviceGetAttributes_v2 " + number_of(device));
  if (!text) return not_supported;
  std::fill_n(numbers, 10, 0u);
  std::istringstream(*text) >> numbers[0] >> numbers[6] >> numbers[8];
  return success;
}
// nvmlVgpuSchedulerGetState_t: the policy is the first of its numbers.
extern "C" int nvmlDeviceGetVgpuSchedulerState(void* device, unsigned* numbers) {
  return give("nvmlDeviceGetVgpuSchedulerState " + number_of(device), &numbers[0]);
}
// Supported, one feature, its code, and whether it is licensed.
extern "C" int nvmlDeviceGetGridLicensableFeatures_v4(void* device, unsigned* numbers) {
  numbers[0] = numbers[1] = 1;
  return give("nvmlDeviceGetGridLicensableFeatures_v4 " + number_of(device), &numbers[3]);
}
