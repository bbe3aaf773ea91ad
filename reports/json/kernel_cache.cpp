#include "reports/json/kernel_cache.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <stdexcept>
#include <thread>

#include "base/atomic_file.h"
#include "base/descriptor.h"
#include "base/errors.h"
#include "base/text.h"
#include "models/probe.h"
#include "models/program.h"
#include "reports/json/archive.h"
#include "reports/json/json_reader.h"
#include "reports/json/json_writer.h"
#include "reports/json/report_fields.h"
#include "reports/json/report_files.h"

namespace nearmetal {
namespace {

using json::Json;

struct Context {
  std::string context;
  std::vector<KernelChoice> kernel_choices;
};

struct CacheFile {
  std::string schema = "nearmetal/plans";
  std::string schema_version = "1.0";
  std::vector<Context> contexts;
};

void fields(json::Archive& field, Context& context) {
  field("context", context.context);
  field("plans", context.kernel_choices);
}

void fields(json::Archive& field, CacheFile& file) {
  field("schema", file.schema, json::one_of("nearmetal/plans"));
  field("schema_version", file.schema_version, json::readable_version);
  field("contexts", file.contexts);
}

constexpr const char* not_json = "it is not JSON";

template <class Object>
std::string written(const Object& object) {
  return json::Writer::json_of(object).dump(1, ' ', false, Json::error_handler_t::replace);
}

// A cache that is damaged is made anew, if it begins as one; other files are somebody's data, and
// so may be what cannot be read.
bool begins_as_cache(const std::filesystem::path& path) try {
  const std::string beginning = R"({"schema":"nearmetal/plans")";
  std::string text = file_text(path);
  text.resize(std::min(text.size(), size_t{200}));
  std::erase_if(text, [](char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; });
  return text.starts_with(beginning) || beginning.starts_with(text);
} catch (const InvalidReport&) {
  return false;
}

// Whole JSON of something else was named by mistake.
void require_own(const std::filesystem::path& path, const std::string& text) {
  json::Document document;
  try {
    document = json::document_of(text);
  } catch (const json::Document::exception&) {
    return;
  }
  const bool named = document.is_object() && document.contains("schema");
  if (named && document["schema"] == CacheFile{}.schema) return;
  throw std::invalid_argument(path.string() +
                              " is no plan cache, and would be replaced by one: name another file");
}

// Empty where there is no file. Throws InvalidReport, std::invalid_argument.
CacheFile read_cache(const std::filesystem::path& path) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return {};
  const std::string text = file_text(path);
  require_own(path, text);
  return json::parsed<CacheFile>(text, not_json);
}

// Each build and each driver has a context of its own; those that were saved longest ago go.
constexpr size_t most_contexts = 16;

std::vector<KernelChoice> plans_of(const CacheFile& cache, const std::string& context) {
  const Context* found = find_in(cache.contexts, context, &Context::context);
  return found == nullptr ? std::vector<KernelChoice>() : found->kernel_choices;
}

// "process 4711", as the kernel lists locks: of what kind, by whom, and on which inode.
std::string holder_of_lock(const Descriptor& file) {
  struct stat status {};
  std::ifstream locks("/proc/locks");
  const bool known = fstat(file.number(), &status) == 0;
  for (std::string line; known && std::getline(locks, line);) {
    const std::vector<std::string> fields = words_in(line);
    const bool is_it =
        fields.size() > 5 && fields[5].ends_with(":" + std::to_string(status.st_ino));
    if (is_it) return "process " + fields[4];
  }
  return "another process";
}

// Locked until the object goes: the kernel frees the lock of a process that dies.
Descriptor locked(const std::string& path, double most_seconds) {
  Descriptor file(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  const double end = steady_seconds() + most_seconds;
  while (!file.is_open() || flock(file.number(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) {
      throw OutputError("cannot lock " + path + ": " + std::strerror(errno));
    }
    if (steady_seconds() >= end) {
      throw OutputError(holder_of_lock(file) + " holds the lock " + path);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return file;
}

}  // namespace

std::string kernel_choice_context(const DeviceInfo& device, const Tool& tool) {
  std::string context = device.name;
  if (device.multiprocessors > 0) {
    context += ", " + std::to_string(device.multiprocessors) + " multiprocessors";
  }
  if (!device.driver_version.empty()) context += ", driver " + device.driver_version;
  for (const auto& [name, version] : device.libraries) context += ", " + name + " " + version;
  context += ", nearmetal " + tool.version;
  if (tool.build_id) context += " build " + *tool.build_id;
  return context;
}

std::optional<std::filesystem::path> default_kernel_cache_path() {
  const auto folder_from = [](const char* variable) -> std::filesystem::path {
    const char* value = std::getenv(variable);
    return value != nullptr && value[0] == '/' ? value : "";
  };
  std::filesystem::path folder = folder_from("XDG_CACHE_HOME");
  if (folder.empty() && !folder_from("HOME").empty()) folder = folder_from("HOME") / ".cache";
  if (folder.empty()) return std::nullopt;
  return folder / "nearmetal" / "plans.json";
}

std::vector<KernelChoice> load_kernel_choices(const std::filesystem::path& path,
                                              const std::string& context,
                                              std::vector<Warning>& warnings) {
  try {
    return plans_of(read_cache(path), context);
  } catch (const InvalidReport& error) {
    const bool is_damaged = begins_as_cache(path);
    warnings.push_back(
        {"plan_cache", "the plan cache " + path.string() + " is ignored: " + error.what() +
                           (is_damaged ? "" : "; it does not begin as one, and stays as it is")});
    return {};
  }
}

void save_kernel_choices(const std::filesystem::path& path, const std::string& context,
                         const std::vector<KernelChoice>& plans, double most_lock_seconds) {
  std::error_code error;
  if (path.has_parent_path()) std::filesystem::create_directories(path.parent_path(), error);
  if (error) {
    throw OutputError("cannot make the folder " + path.parent_path().string() + ": " +
                      error.message());
  }
  const Descriptor lock = locked(path.string() + ".lock", most_lock_seconds);
  CacheFile cache;
  try {
    cache = read_cache(path);
  } catch (const InvalidReport&) {
    if (!begins_as_cache(path)) return;
    cache = {};
  }
  std::vector<KernelChoice> known = plans_of(cache, context);
  for (const KernelChoice& plan : plans) {
    std::erase_if(known, [&](const KernelChoice& other) { return other.key == plan.key; });
    known.push_back(plan);
  }
  std::erase_if(cache.contexts, [&](const Context& other) { return other.context == context; });
  cache.contexts.push_back({context, known});
  while (cache.contexts.size() > most_contexts) cache.contexts.erase(cache.contexts.begin());
  write_file_atomically(path, written(cache), true);
}

std::string kernel_choices_to_json(const std::vector<KernelChoice>& plans) {
  return written(Context{"", plans});
}

std::vector<KernelChoice> kernel_choices_from_json(const std::string& text) {
  return json::parsed<Context>(text, not_json).kernel_choices;
}

}  // namespace nearmetal
