#include "comm/layout/layout_json.h"

#include <fstream>
#include <stdexcept>

#include "comm/layout/cpu_list.h"
#include "comm/layout/layout_document.h"
#include "comm/layout/layout_names.h"
#include "comm/layout/mig_profiles.h"
#include "comm/layout/short_form.h"
#include "models/errors.h"
#include "reports/json/forms.h"
#include "reports/json/json.h"
#include "reports/json/json_reader.h"

namespace nearmetal {
namespace {

using json::Form;
using json::Range;
using json::within;

// Whether `read` takes the text; what it throws is not shown, as the form says the same.
template <auto read>
bool reads(const std::string& text) {
  try {
    read(text);
    return true;
  } catch (const std::invalid_argument&) {
    return false;
  }
}

constexpr Form name_of_host{is_host_name,
                            "a name of letters, digits, '.', '-' and '_', the first no sign"};
constexpr Form plain_text{is_plain_text,
                          "a text of 1 to 1000 bytes, without control characters, "
                          "that does not start with '-'"};
constexpr Form network{is_network, "a network such as 10.0.0.0/24"};
constexpr Form cpu_list{reads<parse_cpu_list>, "a list of CPUs such as 0-3,8, each once"};
constexpr Form shape{reads<parse_short_form>,
                     "nodes x VMs x GPUs, such as 1x1x2, 2*(1x1x2) or 1x1x2+1x1x1"};
constexpr Form mig_uuid{is_mig_uuid, "the UUID of a MIG device, as nvidia-smi -L prints it"};
constexpr Form mig_profile{is_mig_profile, "a MIG profile such as 1g.18gb"};
constexpr Range gpu_count = within(0, 1024);
constexpr Range gpu_index = within(0, 1023);
constexpr Range rank_count = within(1, 65536);
constexpr Range seconds{.minimum = 0, .maximum = 1e6, .above_minimum = true};

}  // namespace

using json::StrictReader;

// Found by argument-dependent look-up, so not in the namespace without a name.

static void fields(StrictReader& field, NumaNode& node) {
  field("cpus", node.cpus, cpu_list);
  field.optional("gpus", node.gpus, gpu_index);
}

static void fields(StrictReader& field, MigDevice& device) {
  field("gpu", device.gpu, gpu_index);
  field("uuid", device.uuid, mig_uuid);
  field("profile", device.profile, mig_profile);
}

static void fields(StrictReader& field, Host& host) {
  field("name", host.name, name_of_host);
  field.optional("address", host.address, name_of_host);
  field.optional("node", host.node, name_of_host);
  field.optional("environment", host.environment);
  field("gpus", host.gpus, gpu_count);
  field.optional("cpus", host.cpus, cpu_list);
  field.optional("numa", host.numa);
  field.optional("mig", host.mig);
}

static void fields(StrictReader& field, Instance& instance) {
  field("host", instance.host, name_of_host);
  field.optional("gpus", instance.gpus, gpu_index);
  field.optional("ranks", instance.ranks, rank_count);
}

static void fields(StrictReader& field, Share& share) {
  field("way", share.way);
  field.optional("threads_percent", share.threads_percent, within(1, 100));
  field.optional("memory_gib", share.memory_gib, within(1, 4096));
  field.optional("profile", share.profile, plain_text);
  field.optional("instance", share.instance, mig_uuid);
}

static void fields(StrictReader& field, Job& job) {
  field("instances", job.instances);
  field.optional("share", job.share);
  field.optional("stress", job.stress);
}

static void fields(StrictReader& field, Expectation& expect) {
  field.optional("environment", expect.environment);
  field.optional("gpu", expect.gpu, plain_text);
  field.optional("world_size", expect.world_size, rank_count);
  field.optional("mig_config", expect.mig_config, plain_text);
}

// Any setting of `run`: the parser of the command line knows them.
static void fields(StrictReader& field, Settings& settings) { field.scalars(settings.texts); }

static void fields(StrictReader& field, Layout& layout) {
  field.optional("shape", layout.shape, shape);
  if (layout.shape) layout.name = *layout.shape;
  if (!layout.shape) {
    field("name", layout.name, plain_text);
  } else {
    field.optional("name", layout.name, plain_text);
  }
  field.optional("jobs", layout.jobs);
  field.optional("emulate", layout.emulate);
  field.optional("workload", layout.workload);
  field.optional("expect", layout.expect);
}

static void fields(StrictReader& field, Launcher& launcher) {
  field.optional("program", launcher.program, plain_text);
  field.optional("network", launcher.network, network);
  field.optional("remote_shell", launcher.remote_shell, plain_text);
  field.optional("variables", launcher.variables);
}

static void fields(StrictReader& field, TimeLimits& limits) {
  field.optional("start_seconds", limits.start_seconds, seconds);
  field.optional("step_seconds", limits.step_seconds, seconds);
  field.optional("job_seconds", limits.job_seconds, seconds);
}

static void fields(StrictReader& field, LayoutFile& file) {
  std::string schema;  // for editors
  field.optional("$schema", schema);
  field.optional("hosts", file.hosts);
  field.optional("launcher", file.launcher);
  field("layouts", file.layouts);
  field.optional("workload", file.workload);
  field.optional("repeats", file.repeats, within(1, 1000));
  field.optional("order", file.order);
  field.optional("seed", file.seed, within(0, json::largest_integer));
  field.optional("limits", file.limits);
}

namespace {

std::string text_of(const std::filesystem::path& path) {
  constexpr size_t enough_to_refuse = (size_t{1} << 20) + 1;
  std::error_code ignored;
  std::ifstream file(path, std::ios::binary);
  if (!file || std::filesystem::is_directory(path, ignored)) {
    throw std::invalid_argument("it cannot be read: " + why_unreadable(path));
  }
  std::string text(enough_to_refuse, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(file.gcount());
  return text;
}

}  // namespace

LayoutFile layout_from_json(std::string_view text) {
  const json::Document document = parse_layout_document(text);
  LayoutFile file;
  try {
    StrictReader reader(document, json::Place{});
    fields(reader, file);
    reader.require_all_known();
  } catch (const InvalidReport& error) {  // what readers throw
    throw std::invalid_argument(error.what());
  }
  if (file.layouts.empty()) throw std::invalid_argument("/layouts: at least one is needed");
  for (size_t i = 0; i < file.layouts.size(); ++i) {
    file.layouts[i].source = "/layouts/" + std::to_string(i);
  }
  check(file);
  return file;
}

LayoutFile read_layout(const std::filesystem::path& path) {
  try {
    return layout_from_json(text_of(path));
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument(path.string() + ": " + error.what());
  }
}

}  // namespace nearmetal
