#include "models/load_module.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "base/descriptor.h"
#include "base/errors.h"

namespace nearmetal {

std::filesystem::path program_path() { return std::filesystem::read_symlink("/proc/self/exe"); }

namespace {

namespace fs = std::filesystem;

constexpr const char* prefix = "libnearmetal_";

fs::path installed_modules(const fs::path& program) {
  return program.parent_path().parent_path() / "lib" / "nearmetal";
}

fs::path module_path(const std::string& name, const std::string& what) {
  const std::string file = prefix + name + ".so";
  const fs::path program = program_path();
  const fs::path folder = program.parent_path();
  for (const fs::path& place : {folder / file, installed_modules(program) / file}) {
    if (!fs::exists(place)) continue;
    require_trusted(place);
    return place;
  }
  throw NotBuilt("this build has no " + what + ": there is no " + file + " in " + folder.string());
}

// Leaves the current folder for as long as it lives: libraries read settings there when they are
// loaded, such as UCX its ucx.conf, which may name others to load. One that may not be entered
// could not be come back to; nor does anything read there.
class AwayFromHere {
 public:
  AwayFromHere() : here_(open(".", O_PATH | O_DIRECTORY | O_CLOEXEC)) {
    if (here_.is_open() && (access(".", X_OK) != 0 || chdir("/") != 0)) here_.close();
  }
  ~AwayFromHere() {
    // What is written would come to lie elsewhere.
    if (here_.is_open() && fchdir(here_.number()) != 0) std::abort();
  }

 private:
  Descriptor here_;
};

}  // namespace

// Beside a program that lies alone in a folder such as /tmp/x, anybody may have made /tmp/lib.
void require_trusted(const fs::path& file) {
  const fs::path program = program_path();
  struct stat of_program {};
  if (stat(program.c_str(), &of_program) != 0) of_program.st_uid = geteuid();
  const fs::path above = program.parent_path().parent_path();
  std::error_code gone;
  std::vector<fs::path> places = {fs::canonical(file, gone).parent_path()};  // where it is a link
  for (fs::path place = file; place != above && place.has_relative_path();
       place = place.parent_path()) {
    places.push_back(place);
  }
  for (const fs::path& place : places) {
    struct stat found {};
    const bool known = stat(place.c_str(), &found) == 0;
    const uid_t owner = found.st_uid;
    const bool own = owner == 0 || owner == geteuid() || owner == of_program.st_uid;
    const bool open_to_all = (found.st_mode & S_IWOTH) != 0;
    if (known && own && !open_to_all) continue;
    throw NotSupported(
        file.string() + " is not loaded: " + place.string() +
        (open_to_all ? " is for everybody to write"
                     : " belongs neither to root, to you nor to the owner of " + program.string()));
  }
}

std::vector<fs::path> modules_of(const fs::path& program) {
  std::vector<fs::path> modules;
  for (const fs::path& folder : {program.parent_path(), installed_modules(program)}) {
    std::error_code ignored;
    for (fs::directory_iterator entry(folder, ignored), end; entry != end;
         entry.increment(ignored)) {
      const std::string name = entry->path().filename();
      const bool is_module = name.starts_with(prefix) && name.ends_with(".so");
      const auto same = [&](const fs::path& other) { return other.filename() == name; };
      if (is_module && std::ranges::none_of(modules, same)) modules.push_back(entry->path());
    }
  }
  std::ranges::sort(modules, {}, [](const fs::path& module) { return module.filename(); });
  return modules;
}

void* load_module(const std::string& name, const std::string& what, const char* entry, bool share) {
  const auto path = module_path(name, what);
  void* module = nullptr;
  {
    const AwayFromHere away;
    module = dlopen(path.c_str(), RTLD_NOW | (share ? RTLD_GLOBAL : RTLD_LOCAL));
  }
  if (module == nullptr) {
    throw NotSupported("the " + what + " does not load: " + dlerror());
  }
  void* found = dlsym(module, entry);
  if (found == nullptr) {
    throw NotSupported(path.string() + " is not the " + what + " of nearmetal: " + dlerror());
  }
  return found;
}

Backend& load_backend(const std::string& name) {
  void* entry = load_module(name, name + " backend", backend_entry_name);
  return *reinterpret_cast<BackendEntry>(entry)();
}

}  // namespace nearmetal
