#include "comm/layout/layout_json.h"

#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/errors.h"
#include "base/file_kind.h"
#include "comm/layout/gpu_profiles.h"
#include "comm/layout/short_form.h"
#include "reports/document/settings.h"
#include "reports/json/archive.h"
#include "reports/json/json_reader.h"
#include "reports/json/json_writer.h"
#include "reports/json/report_files.h"

namespace nearmetal {

// The fields of a layout file, with what must hold of them. What no list says (which fields need
// one another) is in layout_schema() and in check().
namespace json {

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

inline constexpr Form name_of_host{
    .pattern = "^[A-Za-z0-9][A-Za-z0-9._-]{0,252}$",
    .description = "a name of letters, digits, '.', '-' and '_', the first no sign",
    .matches = is_host_name};
inline constexpr Form plain_text{
    .pattern = R"(^[^\u0000-\u001f\u007f-][^\u0000-\u001f\u007f]{0,999}$)",
    .description =
        "a text of 1 to 1000 bytes, without control characters, that does not start with '-'",
    .matches = is_plain_text};
inline constexpr Form network{
    .pattern = R"(^[0-9]{1,3}(\.[0-9]{1,3}){3}/([0-9]|[12][0-9]|3[0-2])$)",
    .description = "a network such as 10.0.0.0/24",
    .matches = is_network};
inline constexpr Form link_rate{
    .pattern = R"(^[0-9]{1,4}(\.[0-9]{1,3})?[MGT]$)",
    .description = "a rate in bits per second such as 100M, 2.5G or 400G",
    .matches = [](const std::string& text) { return bits_per_second_of(text).has_value(); }};
inline constexpr Form cpu_list{.pattern = "^[0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*$",
                               .description = "a list of CPUs such as 0-3,8, each once",
                               .matches = reads<parse_cpu_list>};
inline constexpr Form shape{
    .pattern = R"(^(0*[1-9][0-9]*\*)?(0*[1-9][0-9]*x0*[1-9][0-9]*x0*[1-9][0-9]*)"
               R"(|\(0*[1-9][0-9]*x0*[1-9][0-9]*x0*[1-9][0-9]*\)))"
               R"((\+(0*[1-9][0-9]*\*)?(0*[1-9][0-9]*x0*[1-9][0-9]*x0*[1-9][0-9]*)"
               R"(|\(0*[1-9][0-9]*x0*[1-9][0-9]*x0*[1-9][0-9]*\)))*$)",
    .description = "nodes x VMs x GPUs, such as 1x1x2, 2*(1x1x2) or 1x1x2+1x1x1",
    .matches = reads<parse_short_form>};
inline constexpr Form mig_uuid{
    .pattern = "^MIG-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$",
    .description = "the UUID of a MIG device, as nvidia-smi -L prints it",
    .matches = is_mig_uuid};
inline constexpr Form mig_profile{.pattern = R"(^([1-7]c\.)?[1-7]g\.[1-9][0-9]{0,3}gb)"
                                             R"(([+-](me|me\.all|gfx)(,(me|me\.all|gfx))*)?$)",
                                  .description = "a MIG profile such as 1g.18gb",
                                  .matches = is_mig_profile};
inline constexpr Range gpu_count = within(0, 1024);
inline constexpr Range gpu_index = within(0, 1023);
inline constexpr Range rank_count = within(1, 65536);
inline constexpr Range limit_seconds{.minimum = 0, .maximum = 1e6, .above_minimum = true};

void fields(Archive& field, NumaNode& node) {
  field.type("numa_node");
  field("cpus", node.cpus, cpu_list, "CPUs as in 0-15,32-47, each once");
  field.optional("gpus", node.gpus, gpu_index, "Indices of the GPUs on the host, in PCI bus order");
}

void fields(Archive& field, MigDevice& device) {
  field.type("mig_device");
  field("gpu", device.gpu, gpu_index, "Index on the host");
  field("uuid", device.uuid, mig_uuid);
  field("profile", device.profile, mig_profile, "Such as 1g.18gb");
}

void fields(Archive& field, Host& host) {
  field.type("host", "One operating-system instance: a bare-metal host, a VM or a container");
  field("name", host.name, name_of_host);
  field.optional("address", host.address, name_of_host,
                 "What the launcher calls: a name, or an address of IP version 4 [the name]");
  field.optional("node", host.node, name_of_host,
                 "The machine below: VMs on one have the same [the host itself]");
  field.optional("environment", host.environment,
                 "What the host is: a claim that its ranks check against what they find. All hosts "
                 "of a layout claim the same, or nothing");
  field("gpus", host.gpus, gpu_count, "How many. 0: ranks compute on the CPUs");
  field.optional("cpus", host.cpus, cpu_list,
                 "CPUs that ranks may use, as in 0-15,32-47, each once; on a host without GPUs "
                 "they share them [all]");
  field.optional("numa", host.numa,
                 "Instead of `cpus`: which CPUs are next to which GPUs, for VMs that are emulated. "
                 "Each GPU is in one of the nodes");
  field.optional("mig", host.mig,
                 "The MIG devices of its GPUs, as nvidia-smi -L prints them, for jobs that share "
                 "by mig. On this machine they may be left out: the driver is asked");
}

void fields(Archive& field, Instance& instance) {
  field.type("instance",
             "The ranks on one host: one for each of the GPUs, or so many on CPUs. With neither, "
             "one rank on what the host has: its first GPU, else its CPUs. A layout of such "
             "instances is left out, and named, where the machine cannot share so");
  field("host", instance.host, name_of_host);
  field.optional("gpus", instance.gpus, gpu_index,
                 "Indices of the GPUs on the host, in PCI bus order");
  field.optional("ranks", instance.ranks, rank_count);
}

void fields(Archive& field, Share& share) {
  field.type("share", "How the jobs of a layout have the same GPUs, or CPUs; all in one way");
  field("way", share.mode,
        "alone: one job on the whole; serial: one after another; timeslice: at once, as the driver "
        "lets them; mps: at once, through an MPS daemon of the sweep's own; sm: like mps, each on "
        "multiprocessors of its own (a green context); mig: at once, each rank on a MIG device of "
        "its own; vgpu: each alone on the vGPU of its VM");
  field.optional("threads_percent", share.threads_percent, within(1, 100),
                 "With mps and sm: largest share of the multiprocessors [all]; sm needs it, and "
                 "rounds down to what the GPU can split");
  field.optional("memory_gib", share.memory_gib, within(1, 4096),
                 "With mps and sm: limit of each GPU's memory [all]");
  field.optional(
      "profile", share.profile, plain_text,
      "With mig: the kind of MIG device, such as 1g.18gb [any that no other job has]. With vgpu, "
      "which needs it: such as A100-40C or A100-3-20C. What a rank finds must be that");
  field.optional("instance", share.instance, mig_uuid,
                 "With mig, instead of a profile: the MIG device itself");
}

// The workload that one job is asked for by itself.
struct JobWorkload {
  Settings settings;
  std::optional<NeighbourLoad> stress{};
};

void fields(Archive& field, JobWorkload& workload) {
  field.type("job_workload",
             "Settings of `nearmetal run` for one job, but those that hold for all jobs of a "
             "layout; or what it does in place of training");
  field.optional("stress", workload.stress,
                 "Disturb the jobs beside it: copy within the GPU's memory, matrix products, or "
                 "copies from pinned host memory; needs a share, at once, and no other setting");
  field.scalars(workload.settings.texts);  // the parser of the command line knows them
  if (field.reads()) workload.settings.texts.erase("stress");
}

void fields(Archive& field, Job& job) {
  field.type("job", "Ranks that train together");
  field("instances", job.instances);
  field.optional("share", job.share);
  JobWorkload workload;
  field.optional("workload", workload, "Over that of the layout");
  field.optional("stress", job.stress,
                 "As in the workload, where earlier versions did not have it");
  if (field.reads()) {
    job.workload = std::move(workload.settings);
    if (workload.stress && job.stress) job.workload.texts["stress"] = to_string(*job.stress);
    if (workload.stress) job.stress = workload.stress;
  }
}

void fields(Archive& field, LinkClaim& link) {
  field.type("link", "The network between hosts: read, never set");
  field("rate", link.rate, link_rate,
        "In bits per second, such as 10G, exactly: of the interface with an address in "
        "`launcher.network`; where that names none, of some interface that is up or some active "
        "port of RDMA");
}

void fields(Archive& field, Expectation& expect) {
  field.type("expectation", "What every rank must find, or the run fails");
  field.optional("environment", expect.environment);
  field.optional("gpu", expect.gpu, plain_text, "Part of its name, such as H200");
  field.optional("world_size", expect.world_size, rank_count, "Ranks of each job");
  field.optional("mig_config", expect.mig_config, plain_text,
                 "FILE or FILE#LABEL: a configuration of mig-parted that all GPUs of this machine "
                 "must have, or nothing is started. Relative to this file");
  field.optional("link", expect.link);
}

void fields(Archive& field, Settings& settings) {
  field.type("workload",
             "Settings of `nearmetal run`, by the name of the option and with what it takes");
  field.scalars(settings.texts);  // the parser of the command line knows them
}

void fields(Archive& field, Grid& grid) {
  field.type("grid",
             "Settings of `nearmetal run`, each with the values that it takes in turn: every "
             "layout runs with every combination of them");
  std::map<std::string, std::vector<std::string>> values;
  field.scalar_lists(values);
  if (field.reads()) {
    for (const auto& [setting, texts] : values) {
      grid.axes.push_back({setting, texts, "/grid/" + setting});
    }
  }
}

void fields(Archive& field, Layout& layout) {
  field.type("layout", "Jobs that run at once, independent of each other");
  field.optional("shape", layout.shape, shape,
                 "Nodes x VMs per node x GPUs per VM, 2*(1x1x2) for two such jobs, + for unlike "
                 "ones. Hosts are taken in the order of the file, nodes that are free first, and "
                 "of each the first free GPUs; on this machine, where the driver tells, those that "
                 "NVLink connects, and for a job over several hosts those near a NIC");
  if (field.reads()) {
    if (layout.shape) layout.name = *layout.shape;
    if (!layout.shape) field.require("name");
  }
  field.optional("name", layout.name, plain_text, "Its arm in the report [the shape]");
  field.optional("jobs", layout.jobs, "Instead of a shape: who is where");
  field.optional("emulate", layout.emulate,
                 "Emulate a VM for each instance: a part of its host, without P2P or shared memory "
                 "to other parts. Results are of kind emulated [false]");
  field.optional("workload", layout.workload, "Over that of the file");
  field.optional("expect", layout.expect);
  field.optional(
      "executable", layout.executable, plain_text,
      "Path of another build of nearmetal for this layout, the same on every host: builds are "
      "measured alternately in one sweep. Relative to this file [the launcher's program]");
}

void fields(Archive& field, Launcher& launcher) {
  field.type("launcher", "How processes get to their hosts: mpirun of Open MPI, by ssh");
  field.optional("program", launcher.program, plain_text,
                 "Path of nearmetal, the same on every host [that of this one]");
  field.optional("network", launcher.network, network,
                 "Network of the addresses that MPI uses, such as 10.0.0.0/24. Where hosts have "
                 "several networks that do not all reach one another, MPI may hang without it");
  field.optional("mpi", launcher.mpi,
                 "What moves MPI's messages: tcp, on one host shared memory; ucx: what UCX takes, "
                 "such as RDMA [tcp; with srun Open MPI's choice]");
  field.optional("remote_shell", launcher.remote_shell, plain_text, "In place of ssh");
  field.optional("variables", launcher.variables,
                 "Environment of every rank, over what it has, such as NCCL_IB_HCA");
}

void fields(Archive& field, TimeLimits& limits) {
  field.type("limits", "Times after which a job has failed");
  field.optional("start_seconds", limits.start_seconds, limit_seconds,
                 "Until the first step [300]");
  field.optional("step_seconds", limits.step_seconds, limit_seconds, "For any step [60]");
  field.optional("job_seconds", limits.job_seconds, limit_seconds, "For the job as a whole [1800]");
}

void fields(Archive& field, LayoutFile& file) {
  field.type(
      "layout",
      "What `nearmetal plan` and `sweep` start: hosts, layouts of jobs over them, what is trained "
      "and how often. JSON, in which comments (// and /* */) are allowed and a key may not be "
      "given twice, of at most 1 MiB. Beyond this schema the program refuses what contradicts "
      "itself, and names hosts, GPUs and CPUs that are not there or taken twice.");
  std::string schema;
  field.optional("$schema", schema, "For editors; not read");
  field.optional("hosts", file.hosts,
                 "Operating-system instances. None: this machine, with what it has, or --hosts");
  field.optional("launcher", file.launcher);
  field("layouts", file.layouts);
  field.optional("workload", file.workload);
  field.optional("grid", file.grid, "Instead of these settings in a workload");
  field.optional("repeats", file.repeats, within(1, 1000), "Fresh starts of each layout [5]");
  field.optional("order", file.order,
                 "Every repeat takes each layout once: in random order, or as listed [randomised]");
  field.optional("seed", file.seed, within(0, largest_integer), "Seed of the random order [1]");
  field.optional("limits", file.limits);
}

}  // namespace json

namespace {

using ParsedJson = nlohmann::json;

constexpr size_t largest_bytes = size_t{1} << 20;
constexpr size_t deepest = 16;

// Follows the parser from value to value: at any time, the levels from the root to where it is.
class Watch {
 public:
  bool operator()(int, ParsedJson::parse_event_t event, const ParsedJson& parsed) {
    using Event = ParsedJson::parse_event_t;
    if (event == Event::key) {
      enter_member(parsed.get_ref<const std::string&>());
    } else if (event == Event::object_end || event == Event::array_end) {
      levels_.pop_back();
    } else {
      if (!levels_.empty() && levels_.back().element) ++*levels_.back().element;
      if (event != Event::value) enter_level(event == Event::array_start);
    }
    return true;
  }

 private:
  struct Level {
    std::optional<int64_t> element;  // of a list: the latest
    std::string key;                 // of an object: the latest
    std::set<std::string> keys;
  };

  void enter_member(const std::string& key) {
    Level& level = levels_.back();
    level.key = key;
    if (!level.keys.insert(key).second) throw std::invalid_argument(pointer() + " is there twice");
  }
  void enter_level(bool list) {
    if (levels_.size() == deepest) throw std::invalid_argument(pointer() + " is nested too deeply");
    levels_.emplace_back();
    if (list) levels_.back().element = -1;
  }

  std::string pointer() const {
    ParsedJson::json_pointer pointer;
    for (const Level& level : levels_) {
      if (level.element) {
        pointer /= static_cast<size_t>(*level.element);
      } else {
        pointer /= level.key;
      }
    }
    return pointer.to_string();
  }

  std::vector<Level> levels_;
};

using json::Json;

// The type that a layout file writes for a setting: as a number, or as the text that its option
// takes.
template <class T>
Json type_of(const T&) {
  if constexpr (std::is_same_v<T, bool>) return "boolean";
  if constexpr (std::is_same_v<T, int64_t>) return {"integer", "string"};
  if constexpr (std::is_same_v<T, double> || std::is_same_v<T, LossScale>) {
    return {"number", "string"};
  }
  return "string";
}
template <class T>
Json type_of(const std::optional<T>&) {
  return type_of(T{});
}

// The properties of a workload of all jobs of a layout, or of one.
Json workload_properties(bool of_one_job) {
  Json properties = Json::object();
  const RunConfig config;
  visit_settings(
      [&](const Setting& setting, const auto& value) {
        if ((setting.commands & in_sweep) == 0) return;
        if (of_one_job && holds_for_all_jobs(setting)) return;
        properties[layout_name_of(setting)] = {{"description", setting.help},
                                               {"type", type_of(value)}};
      },
      config);
  properties[global_batch] = {
      {"description",
       "Images per step of all ranks of a job, which share them evenly; instead of batch"},
      {"type", type_of(int64_t{})}};
  return properties;
}

Json grid_properties() {
  Json properties = workload_properties(false);
  for (auto& [name, property] : properties.items()) {
    property = {{"description", property["description"]},
                {"type", "array"},
                {"items", {{"type", property["type"]}}},
                {"minItems", 1},
                {"uniqueItems", true}};
  }
  return properties;
}

// JSON as people write it, within limits: comments are allowed, a key given twice is not.
ParsedJson parse_layout_document(std::string_view text) {
  if (text.size() > largest_bytes) throw std::invalid_argument("it is larger than 1 MiB");
  try {
    return ParsedJson::parse(text, Watch(), true, true);
  } catch (const ParsedJson::exception& error) {
    throw std::invalid_argument("not JSON: " + parser_reason(error.what()));
  }
}

}  // namespace

std::string text_of_file(const std::filesystem::path& path) {
  if (path == "-") {
    static const std::string input = standard_input();  // doctor reads it twice
    return input;
  }
  std::error_code ignored;
  std::ifstream file(path, std::ios::binary);
  if (!file || std::filesystem::is_directory(path, ignored)) {
    throw std::invalid_argument("it cannot be read: " + why_unreadable(path));
  }
  std::string text(largest_bytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(file.gcount());
  return text;
}

LayoutFile layout_from_json(std::string_view text) {
  const json::Document document = parse_layout_document(text);
  LayoutFile file;
  try {
    json::Reader reader(document, json::Place{}, json::Tolerance::strict);
    json::fields(reader, file);
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
  std::string text;
  try {
    text = text_of_file(path);
    return layout_from_json(text);
  } catch (const std::invalid_argument& error) {
    const std::string other = other_kind("\"layouts\"", text);
    throw std::invalid_argument(path.string() + ": " + (other.empty() ? error.what() : other));
  }
}

std::string layout_schema() {
  Json schema = json::SchemaWriter::document(LayoutFile{}, "Layout file of nearmetal", true);
  schema["properties"]["layouts"]["minItems"] = 1;
  Json& types = schema["$defs"];
  types["job"]["properties"]["instances"]["minItems"] = 1;
  types["layout"]["anyOf"] = Json::array(
      {{{"required", Json::array({"shape"})}}, {{"required", Json::array({"name", "jobs"})}}});
  Json& variables = types["launcher"]["properties"]["variables"];
  variables["propertyNames"] = {{"pattern", "^[A-Za-z_][A-Za-z0-9_]{0,199}$"}};
  variables["additionalProperties"] = {{"type", "string"},
                                       {"pattern", R"(^[^\u0000-\u001f\u007f]{0,999}$)"}};
  types["workload"]["properties"] = workload_properties(false);
  types["job_workload"]["properties"].update(workload_properties(true));
  types["grid"]["properties"] = grid_properties();
  return json::schema_text(schema);
}

}  // namespace nearmetal
