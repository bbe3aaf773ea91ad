// A layout file as plain data: hosts, layouts of jobs over them, what is trained and how often.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/names.h"
#include "reports/document/environment.h"
#include "reports/document/sharing_mode.h"
#include "reports/document/special_members.h"
#include "reports/document/types.h"

namespace nearmetal {

constexpr int64_t most_ranks = 65536;  // of a job

/// CPUs and the GPUs next to them.
struct NumaNode {
  std::string cpus;           // "0-15,32-47"
  std::vector<int64_t> gpus;  // by their index on the host
};

/// A part of a GPU that is there, made by an administrator.
struct MigDevice {
  int64_t gpu = 0;      // by its index on the host
  std::string uuid;     // MIG-...
  std::string profile;  // 1g.18gb; empty: not known

  bool operator==(const MigDevice&) const = default;
};

inline const std::string& profile_or_uuid(const MigDevice& device) {
  return device.profile.empty() ? device.uuid : device.profile;
}

/// Why a GPU has no MIG devices that an administrator can divide.
inline constexpr const char* mig_is_off = "MIG is off";

/// The facts that the driver reports of a GPU, where it was asked: on this machine.
struct GpuFound {
  std::string name;                     // NVIDIA H200; empty: not told
  std::optional<std::string> no_mig{};  // why it has no MIG devices; none: it may have some
};

/// The ways from a GPU, where the driver was asked: on this machine.
struct GpuPlace {
  std::vector<int64_t> nvlinks{};            // GPUs that an NVLink connects it with, by index
  std::optional<PciDistance> nearest_nic{};  // with RDMA
  std::string nic{};                         // its name; of several as near, the first
};

/// The address of the machine that the launcher runs on.
inline constexpr const char* this_host = "localhost";

/// One operating-system instance: a bare-metal host, a VM or a container.
struct Host {
  NM_DECLARE_SPECIAL_MEMBERS(Host);
  std::string name;
  std::optional<std::string> address;  // called by the launcher; else the name
  std::optional<std::string> user{};   // logs in there; else as ssh says. Not in the file
  std::optional<std::string> node;     // the machine below, of which VMs share one; else the host
  std::optional<MachineKind> environment;              // as claimed
  int64_t gpus = 0;                                    // 0: ranks compute on the CPUs
  std::optional<std::vector<int64_t>> visible_gpus{};  // taken by shapes, by index, rising; else
                                                       // all. Not in the file
  std::optional<std::string> cpus;                     // allowed to ranks; else what each finds
  std::vector<NumaNode> numa;         // instead of `cpus`: which are near which GPU
  std::vector<MigDevice> mig{};       // of its GPUs
  std::vector<GpuFound> found{};      // by index; empty: not asked. Not in the file
  std::vector<GpuPlace> places{};     // the same
  std::vector<std::string> models{};  // of its GPUs: the same; "": not told
};

/// The ranks of a job on one operating-system instance: one for each GPU, or on CPUs `ranks`. With
/// neither, one rank on what the host has: its first GPU, else its CPUs.
struct Instance {
  std::string host;
  std::vector<int64_t> gpus;
  int64_t ranks = 0;
};

/// The load of a process that trains nothing.
enum class NeighbourLoad { copy, compute, pcie };
constexpr auto names_of(NeighbourLoad) { return std::array{"copy", "compute", "pcie"}; }

/// Settings of `nearmetal run` by name, such as image_size, as their text.
struct Settings {
  std::map<std::string, std::string> texts;
};

/// Ranks that train together; or one process that only disturbs those beside it.
struct Job {
  std::vector<Instance> instances;
  std::optional<Share> share{};           // none: what it takes is its own
  std::optional<NeighbourLoad> stress{};  // in place of training
  Settings workload{};                    // over the layout's
};

/// Among them, the batch of all ranks of a job together, of which each takes its share.
inline constexpr const char* global_batch = "global_batch";

/// A setting of `nearmetal run` and the values that it takes in turn, each as its text.
struct GridAxis {
  std::string setting;  // image_size
  std::vector<std::string> values;
  std::string source;  // where it was written, for messages
};

struct Grid {
  std::vector<GridAxis> axes;  // every value of each goes with every value of the others
};

/// The rate that the network of ranks on several hosts must have: read, never set.
struct LinkClaim {
  std::string rate;                      // in bits per second, exactly: "10G"
  std::optional<std::string> network{};  // of its address; else any. Not in the file
};

/// "10G,10.0.0.0/24"
std::string text_of(const LinkClaim& link);

/// The bits per second of "100M", "2.5G" or "1.6T"; none: the text is no such rate.
std::optional<int64_t> bits_per_second_of(const std::string& rate);

/// The facts that every rank must find, or the run fails.
struct Expectation {
  std::optional<MachineKind> environment{};
  std::optional<std::string> gpu{};         // part of its name
  std::optional<int64_t> world_size{};      // of each job
  std::optional<std::string> mig_config{};  // FILE or FILE#LABEL of mig-parted, of all GPUs
  std::optional<LinkClaim> link{};
  // Not in the file:
  std::optional<std::string> uuid{};  // of the GPU, or of the MIG device
  std::optional<std::string> mig{};   // profile of the MIG device
  std::optional<std::string> vgpu{};  // profile of the vGPU
  std::vector<std::string> hosts{};   // the planned one of each rank; each is another machine
  std::optional<std::string> cpus{};  // all that the rank may use
};

/// Jobs that run at once (or share in turn), independent of each other.
struct Layout {
  NM_DECLARE_SPECIAL_MEMBERS(Layout);
  std::string name;
  std::optional<std::string> shape;  // short form (comm/layout/short_form.h), instead of `jobs`
  std::vector<Job> jobs;
  bool emulate = false;  // each instance is an emulated VM: a part of a host
  Settings workload;     // over the file's
  Expectation expect;
  std::optional<std::string> executable{};  // instead of that of the launcher
  std::optional<Executable> build{};        // of that, when the plan was made. Not in the file
  std::optional<GridPoint> grid{};          // its combination. Not in the file
  std::string source;                       // where it was written, for messages
  bool portable = false;  // its instances took what their hosts have. Not in the file
};

/// What moves the messages of MPI.
enum class MpiTransport { tcp, ucx };
constexpr auto names_of(MpiTransport) { return std::array{"tcp", "ucx"}; }

/// How processes get to their hosts.
struct Launcher {
  std::optional<std::string> program;            // path of nearmetal on every host; else this one's
  std::optional<std::string> network;            // CIDR of the addresses that MPI uses; else all
  std::optional<MpiTransport> mpi{};             // none: tcp, and with srun Open MPI's choice
  std::optional<std::string> remote_shell;       // in place of ssh
  std::vector<std::string> networks_left_out{};  // CIDRs that reach no other host; not in the file
  std::map<std::string, std::string> variables;  // environment of every rank
};

/// After which a run has failed.
struct TimeLimits {
  double start_seconds = 300;
  double step_seconds = 60;
  double job_seconds = 1800;
};

/// The order in which each repeat takes the layouts.
enum class Order { randomised, listed };
constexpr auto names_of(Order) { return std::array{"randomised", "listed"}; }

struct LayoutFile {
  std::vector<Host> hosts;  // none: this machine
  Launcher launcher;
  std::vector<Layout> layouts;
  Settings workload;
  Grid grid{};  // each layout runs with each combination
  int64_t repeats = 5;
  Order order = Order::randomised;
  int64_t seed = 1;  // of the order
  TimeLimits limits;
};

/// How many there are; of more than a million, some number above that.
size_t combinations_of(const Grid& grid);

/// "batch 32, 64 x precision fp16, bf16: 4 combinations".
std::string grid_text(const Grid& grid);

/// Throws std::invalid_argument, which names the place in the file, for what contradicts itself:
/// hosts or layouts of one name, NUMA nodes that share CPUs or GPUs, variables that a plan sets,
/// jobs of one layout in several sharing modes.
void check(const LayoutFile& file);

/// Throws std::invalid_argument: "PLACE: REASON".
[[noreturn]] void refuse(const std::string& place, const std::string& reason);

/// With one rank for each instance that names neither GPUs nor a number of ranks: on the first
/// visible GPU of its host, else on its CPUs.
std::vector<Layout> fill_in_instances(std::vector<Layout> layouts, const std::vector<Host>& hosts);

/// The CPUs that ranks may use, or none where that is not known.
std::vector<int64_t> cpus_of(const Host& host);

/// The GPUs of a layout that names none, by index, rising.
std::vector<int64_t> visible_gpus_of(const Host& host);

/// The first of them; 0 where there are none.
int64_t first_gpu_of(const Host& host);

/// What the driver reports of a GPU; nothing where it was not asked.
const GpuFound& gpu_facts(const Host& host, int64_t gpu);

const std::string& address_of(const Host& host);
const std::string& node_of(const Host& host);

/// A host's name has letters, digits, '.', '-' and '_', at most 253, the first a letter or digit. A
/// numeric address of version 6 is none, as launchers read what follows ':' as slots.
bool is_host_name(const std::string& text);

/// Words to show, or a value: UTF-8 without control characters, 1 to 1000 bytes, the first no '-'.
bool is_plain_text(const std::string& text);

/// Addresses of version 4 and the length of their common prefix: 10.0.0.0/24.
bool is_network(const std::string& text);
/// The same of IPv6: fd00::/64.
bool is_ipv6_network(const std::string& text);

/// The CPUs in ascending order, each once. Throws std::invalid_argument for what is no such list,
/// holds a CPU twice, or one above 65535.
std::vector<int64_t> parse_cpu_list(const std::string& text);

/// The shortest text; `cpus` in ascending order.
std::string to_cpu_list(const std::vector<int64_t>& cpus);

/// The part of `index` of `parts` nearly equal ones, neighbours together; the first are larger by
/// one where it does not come out even.
std::vector<int64_t> part_of(const std::vector<int64_t>& cpus, int64_t index, int64_t parts);

}  // namespace nearmetal
