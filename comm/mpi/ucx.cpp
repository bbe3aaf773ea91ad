#include "comm/mpi/ucx.h"

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <set>
#include <sstream>

#include "base/pattern.h"
#include "base/text.h"
#include "models/load_module.h"

namespace nearmetal {
namespace {

// Of src/ucp/api/ucp.h, the same since UCX 1.0, of the library that is loaded; null: none is.
template <class Function>
Function* ucx_function(const char* name) {
  void* library = dlopen("libucp.so.0", RTLD_LAZY | RTLD_NOLOAD);
  return library == nullptr ? nullptr : reinterpret_cast<Function*>(dlsym(library, name));
}

std::mutex mutex;
std::vector<void*> endpoints;  // of Open MPI, which closes them when it ends

// In Open MPI 5 its components are within its library.
bool is_open_mpi(const void* code) {
  Dl_info info{};
  const std::string file = dladdr(code, &info) != 0 && info.dli_fname ? info.dli_fname : "";
  return file.find("mca_pml_ucx") != file.npos || file.find("libmpi.so") != file.npos;
}

std::string info_of(void* endpoint) {
  char* text = nullptr;
  size_t size = 0;
  auto* print = ucx_function<void(void* endpoint, FILE* out)>("ucp_ep_print_info");
  FILE* out = print == nullptr ? nullptr : open_memstream(&text, &size);
  if (out == nullptr) return "";
  print(endpoint, out);
  std::fclose(out);
  const std::string info(text, size);
  std::free(text);
  return info;
}

}  // namespace

// "#                 lane[0]:  3:tcp/eth0.0 md[2]     -> md[2]/tcp/sysdev[255] am am_bw#0", as
// ucp_ep_config_print() of src/ucp/core/ucp_ep.c writes it; since UCX 1.9 with the number of a
// path. Lanes of a connection manager ("cm rdmacm") and of a proxy ("proxy to lane[1]") have no
// device.
std::vector<std::string> ucx_transports(const std::string& info) {
  static const Pattern lane(R"(^#\s+lane\[\d+\]:\s+\d+:(\S+?/\S+?)(\.\d+)? md\[)");
  std::vector<std::string> found;
  std::istringstream lines(info);
  for (std::string line; std::getline(lines, line);) {
    const auto groups = lane.groups_in(line);
    if (groups.empty()) continue;
    if (groups[1].starts_with("self/")) return {};
    add_new(found, groups[1]);
  }
  return found;
}

Maybe<std::vector<std::string>> ucx_transports_taken() {
  std::set<std::string> names;
  const std::lock_guard lock(mutex);
  for (void* endpoint : endpoints) {
    for (auto& name : ucx_transports(info_of(endpoint))) names.insert(name);
  }
  if (names.empty()) return Unknown{"MPI exchanged nothing by UCX, which alone tells"};
  return std::vector<std::string>(names.begin(), names.end());
}

}  // namespace nearmetal

// UCX has no list of its endpoints, and Open MPI tells nobody its own. As this module is loaded for
// all to see, Open MPI's component finds this function in place of the library's, which it calls.
NM_EXPORT signed char ucp_ep_create(void* worker, const void* parameters, void** endpoint) {
  using namespace nearmetal;
  constexpr signed char unsupported = -22;  // UCS_ERR_UNSUPPORTED of src/ucs/type/status.h
  auto* create = ucx_function<signed char(void*, const void*, void**)>("ucp_ep_create");
  const signed char status = create ? create(worker, parameters, endpoint) : unsupported;
  const std::lock_guard lock(mutex);
  if (status == 0 && is_open_mpi(__builtin_return_address(0))) endpoints.push_back(*endpoint);
  return status;
}
