#include "comm/layout/layout_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/refusal.h"
#include "tests/support/refusal_of_layout.h"
#include "tests/support/temporary_folder.h"

namespace nearmetal {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

// A file with these members beside a layout.
std::string with(const std::string& members) {
  return R"({"layouts": [{"shape": "1x1x1"}], )" + members + "}";
}
std::string with_host(const std::string& members) {
  return with(R"("hosts": [{"name": "a", "gpus": 2, )" + members + "}]");
}
std::string with_layout(const std::string& members) {
  return R"({"layouts": [{)" + members + "}]}";
}

TEST(LayoutJson, ReadsAllThereIs) {
  const LayoutFile file = layout_from_json(R"({
    // A remark.
    "$schema": "layout.schema.json",
    "hosts": [
      {"name": "vm0", "address": "10.0.0.1", "node": "esx", "environment": "vm", "gpus": 2,
       "numa": [{"cpus": "0-3", "gpus": [0]}, {"cpus": "4-7", "gpus": [1]}]},
      {"name": "vm1", "gpus": 0, "cpus": "0-1"}
    ],
    "launcher": {"program": "/opt/nearmetal", "network": "10.0.0.0/24", "remote_shell": "rsh",
                 "variables": {"NCCL_DEBUG": "WARN", "EMPTY": ""}},
    "layouts": [
      {"shape": "1x1x2", "emulate": true},
      {"name": "both", "jobs": [{"instances": [{"host": "vm0", "gpus": [1, 0]}]},
                                {"instances": [{"host": "vm1", "ranks": 2}]}],
       "workload": {"batch": 64}, "expect": {"environment": "vm", "gpu": "H200", "world_size": 2}}
    ],
    "workload": {"batch": 256, "verify": true, "momentum": 0.5, "duration": "20s"},
    "repeats": 7, "order": "listed", "seed": 42,
    "limits": {"start_seconds": 1, "step_seconds": 2.5, "job_seconds": 3} /* the end */
  })");
  EXPECT_EQ(file.hosts.at(0).address, "10.0.0.1");
  EXPECT_EQ(file.hosts.at(0).node, "esx");
  EXPECT_EQ(file.hosts.at(0).environment, MachineKind::vm);
  EXPECT_EQ(file.hosts.at(0).numa.at(1).cpus, "4-7");
  EXPECT_THAT(file.hosts.at(0).numa.at(1).gpus, ElementsAre(1));
  EXPECT_EQ(file.hosts.at(1).cpus, "0-1");
  EXPECT_EQ(address_of(file.hosts.at(1)), "vm1");
  EXPECT_EQ(file.launcher.program, "/opt/nearmetal");
  EXPECT_EQ(file.launcher.network, "10.0.0.0/24");
  EXPECT_EQ(file.launcher.remote_shell, "rsh");
  EXPECT_EQ(file.launcher.variables.at("NCCL_DEBUG"), "WARN");
  EXPECT_EQ(file.layouts.at(0).name, "1x1x2");
  EXPECT_TRUE(file.layouts.at(0).emulate);
  EXPECT_EQ(file.layouts.at(1).source, "/layouts/1");
  EXPECT_THAT(file.layouts.at(1).jobs.at(0).instances.at(0).gpus, ElementsAre(1, 0));
  EXPECT_EQ(file.layouts.at(1).jobs.at(1).instances.at(0).ranks, 2);
  EXPECT_EQ(file.layouts.at(1).workload.texts.at("batch"), "64");
  EXPECT_EQ(file.layouts.at(1).expect.gpu, "H200");
  EXPECT_EQ(file.layouts.at(1).expect.world_size, 2);
  EXPECT_THAT(file.workload.texts,
              ElementsAre(testing::Pair("batch", "256"), testing::Pair("duration", "20s"),
                          testing::Pair("momentum", "0.5"), testing::Pair("verify", "true")));
  EXPECT_EQ(file.repeats, 7);
  EXPECT_EQ(file.order, Order::listed);
  EXPECT_EQ(file.seed, 42);
  EXPECT_EQ(file.limits.step_seconds, 2.5);
}

// A layout whose jobs share the only GPU of a host as these say.
std::string with_shares(const std::vector<std::string>& shares, const std::string& more = "") {
  std::string jobs;
  for (const std::string& share : shares) {
    jobs += (jobs.empty() ? "" : ", ") +
            std::string(R"({"instances": [{"host": "a", "gpus": [0]}])") +
            (share.empty() ? "" : ", \"share\": " + share) + "}";
  }
  return R"({"hosts": [{"name": "a", "gpus": 1}], "layouts": [{"name": "s")" + more +
         R"(, "jobs": [)" + jobs + "]}]}";
}

TEST(LayoutJson, ReadsHowJobsShare) {
  const LayoutFile file = layout_from_json(with_shares(
      {R"({"way": "mps", "threads_percent": 50, "memory_gib": 20})", R"({"way": "mps"})"}));
  const std::vector<Job>& jobs = file.layouts.at(0).jobs;
  EXPECT_EQ(jobs.at(0).share, (Share{SharingMode::mps, 50, 20}));
  EXPECT_EQ(jobs.at(1).share, Share{SharingMode::mps});
}

TEST(LayoutJson, RefusesSharesThatContradictEachOther) {
  const std::string slices = R"({"way": "timeslice"})", alone = R"({"way": "alone"})";
  EXPECT_THAT(refusal_of_layout(with_shares({slices, R"({"way": "serial"})"})),
              StartsWith("/layouts/0/jobs/1/share: the jobs of a layout share in one way"));
  EXPECT_THAT(refusal_of_layout(with_shares({slices, ""})), HasSubstr("share in one way"));
  EXPECT_THAT(refusal_of_layout(with_shares({alone, alone})), HasSubstr("the only one"));
  EXPECT_THAT(refusal_of_layout(with_shares({slices}, R"(, "emulate": true)")),
              HasSubstr("emulated VM"));
  EXPECT_THAT(refusal_of_layout(with_shares({R"({"way": "timeslice", "threads_percent": 50})"})),
              HasSubstr("only mps and sm have limits"));
  EXPECT_THAT(refusal_of_layout(with_shares({R"({"way": "mps", "threads_percent": 101})"})),
              StartsWith("/layouts/0/jobs/0/share/threads_percent must be from 1 to 100"));
  EXPECT_THAT(
      refusal_of_layout(with_shares({R"({"way": "luck"})"})),
      StartsWith(
          "/layouts/0/jobs/0/share/way must be alone, serial, timeslice, mps, sm, mig or vgpu"));
  EXPECT_THAT(refusal_of_layout(with_shares({R"({"way": "sm"})"})),
              StartsWith("/layouts/0/jobs/0/share: sm needs a threads_percent"));
  const std::string most = R"({"way": "sm", "threads_percent": 60})";
  EXPECT_THAT(refusal_of_layout(with_shares({most, most})),
              StartsWith("/layouts/0/jobs/1/share/threads_percent: the parts of GPU 0 are more"));
}

TEST(LayoutJson, ReadsMigAndVgpu) {
  const std::string uuid = "MIG-00000000-0000-0000-0000-000000000001";
  const LayoutFile file = layout_from_json(
      with_shares({R"({"way": "mig", "profile": "1g.18gb"})",
                   R"({"way": "mig", "instance": ")" + uuid + R"("})", R"({"way": "mig"})"},
                  R"(, "expect": {"mig_config": "c.yaml#all"})"));
  const std::vector<Job>& jobs = file.layouts.at(0).jobs;
  EXPECT_EQ(jobs.at(0).share->profile, "1g.18gb");
  EXPECT_EQ(jobs.at(1).share->instance, uuid);
  EXPECT_EQ(file.layouts[0].expect.mig_config, "c.yaml#all");
  EXPECT_EQ(layout_from_json(with_shares({R"({"way": "vgpu", "profile": "A100-40C"})"}))
                .layouts[0]
                .jobs[0]
                .share->profile,
            "A100-40C");
  const LayoutFile listed = layout_from_json(
      with_host(R"("mig": [{"gpu": 1, "uuid": ")" + uuid + R"(", "profile": "1g.18gb"}])"));
  EXPECT_EQ(listed.hosts[0].mig.at(0), (MigDevice{1, uuid, "1g.18gb"}));
}

TEST(LayoutJson, RefusesMigAndVgpuThatCannotBe) {
  const std::string uuid = "MIG-00000000-0000-0000-0000-000000000001";
  const std::string device = R"({"gpu": 0, "uuid": ")" + uuid + R"(", "profile": "1g.18gb"})";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {with_shares({R"({"way": "mps", "profile": "1g.18gb"})"}), "only mig and vgpu have profiles"},
      {with_shares({R"({"way": "vgpu", "profile": "A100-40C", "instance": ")" + uuid + R"("})"}),
       "only mig has instances"},
      {with_shares({R"({"way": "mig", "profile": "1g.18gb", "instance": ")" + uuid + R"("})"}),
       "give one of them"},
      {with_shares({R"({"way": "mig", "profile": "small"})"}), "it is no MIG profile"},
      {with_shares({R"({"way": "mig", "instance": "GPU-1"})"}), "must be the UUID of a MIG device"},
      {with_shares({R"({"way": "mig", "threads_percent": 50})"}), "only mps and sm have limits"},
      {with_shares({R"({"way": "vgpu"})"}), "vgpu needs that of the vGPU"},
      {with_shares({R"({"way": "vgpu", "profile": "1g.18gb"})"}), "vgpu needs that of the vGPU"},
      {with_host(R"("mig": [{"gpu": 2, "uuid": ")" + uuid + R"(", "profile": "1g.18gb"}])"),
       "/hosts/0/mig/0/gpu: there is no GPU 2"},
      {with_host("\"mig\": [" + device + ", " + device + "]"),
       "/hosts/0/mig/1/uuid: it is there twice"},
  };
  for (const auto& [text, expected] : cases) {
    EXPECT_THAT(refusal_of_layout(text), HasSubstr(expected)) << text;
  }
}

TEST(LayoutJson, LeavesTheDefaultsWhereNothingIsSaid) {
  const LayoutFile file = layout_from_json(with_layout(R"("shape": "1x1x1")"));
  EXPECT_EQ(file.repeats, 5);
  EXPECT_EQ(file.order, Order::randomised);
  EXPECT_TRUE(file.hosts.empty());
  EXPECT_FALSE(file.layouts.front().emulate);
}

TEST(LayoutJson, RefusesWhatIsNoJson) {
  for (const char* text : {"", " ", "{", "nul", "{} {}", "{'a': 1}", R"({"layouts": [],})", "\xff",
                           R"({"repeats": 1e999})", R"({"repeats": NaN})", "{/* open"}) {
    EXPECT_THAT(refusal_of_layout(text), StartsWith("not JSON: ")) << text;
  }
  EXPECT_EQ(refusal_of_layout(std::string(2 << 20, ' ')), "it is larger than 1 MiB");
}

TEST(LayoutJson, RefusesDeepNestingWhereItStarts) {
  const std::string deep(10000, '[');
  EXPECT_THAT(refusal_of_layout(deep), HasSubstr("is nested too deeply"));
  EXPECT_THAT(refusal_of_layout(with("\"hosts\": " + deep)), StartsWith("/hosts/0/0/0"));
  std::string objects;
  for (int i = 0; i < 10000; ++i) objects += R"({"a": )";
  EXPECT_THAT(refusal_of_layout(objects), StartsWith("/a/a/a"));
}

TEST(LayoutJson, RefusesKeysGivenTwice) {
  EXPECT_EQ(refusal_of_layout(with(R"("repeats": 1, "repeats": 2)")), "/repeats is there twice");
  EXPECT_EQ(refusal_of_layout(with_host(R"("cpus": "0", "cpus": "1")")),
            "/hosts/0/cpus is there twice");
  EXPECT_EQ(refusal_of_layout(R"({"layouts": [{"shape": "1x1x1"}, {"name": "a", "name": "b"}]})"),
            "/layouts/1/name is there twice");
  EXPECT_EQ(refusal_of_layout(with(R"("workload": {"batch": 1, "batch": 1})")),
            "/workload/batch is there twice");
}

TEST(LayoutJson, RefusesUnknownKeysAndNamesTheKnown) {
  EXPECT_THAT(refusal_of_layout(with(R"("repaets": 3)")),
              StartsWith("/repaets is not known; did you mean 'repeats'? There are: $schema, "
                         "hosts, launcher, layouts"));
  EXPECT_THAT(refusal_of_layout(with_host(R"("gpu": 1)")), StartsWith("/hosts/0/gpu is not known"));
  EXPECT_EQ(refusal_of_layout(R"({"hosts": [{"name": "a", "gpu": 2}], "layouts": []})"),
            "/hosts/0/gpu is not known; did you mean 'gpus'?");
  EXPECT_THAT(refusal_of_layout(with_layout(R"("shape": "1x1x1", "expect": {"a/b": 1})")),
              StartsWith("/layouts/0/expect/a~1b is not known"));
}

TEST(LayoutJson, NamesPlaceAndReasonOfWrongValues) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"[]", "/ must be an object"},
      {"{}", "/layouts must be there"},
      {R"({"layouts": []})", "/layouts: at least one is needed"},
      {R"({"layouts": [{}]})", "/layouts/0/name must be there"},
      {with(R"("repeats": 0)"), "/repeats must be from 1 to 1000"},
      {with(R"("repeats": 1e300)"), "/repeats must be "},
      {with(R"("repeats": 2.5)"), "/repeats must be an integer"},
      {with(R"("repeats": null)"), "/repeats must be a number"},
      {with(R"("order": "random")"), "/order must be randomised or listed"},
      {with(R"("seed": 9007199254740993)"), "/seed must be "},
      {with(R"("limits": {"job_seconds": 0})"), "/limits/job_seconds must be "},
      {with(R"("workload": {"batch": [1]})"), "/workload/batch must be a text, a number"},
      {with_host(R"("address": "-oProxyCommand=x")"), "/hosts/0/address must be a name"},
      {with_host(R"("address": "a:1")"), "/hosts/0/address must be a name"},
      {with_host(R"("cpus": "3-1")"), "/hosts/0/cpus must be a list of CPUs"},
      {with_host(R"("environment": "cloud")"), "/hosts/0/environment must be vm, bare-metal"},
      {with(R"("launcher": {"program": "--version"})"), "/launcher/program must be a text"},
      {with(R"("launcher": {"remote_shell": "a\nb"})"), "/launcher/remote_shell must be a text"},
      {with(R"("launcher": {"network": "10.0.0.0"})"), "/launcher/network must be a network"},
      {with(R"("launcher": {"network": "10.0.0.0/33"})"), "/launcher/network must be a network"},
      {with(R"("launcher": {"variables": {"A=B": "c"}})"), "/launcher/variables: 'A=B' is no name"},
      {with(R"("launcher": {"variables": {"A": "\u0000"}})"), "/launcher/variables/A: a text"},
      {with_layout(R"("shape": "1x1")"), "/layouts/0/shape must be nodes x VMs x GPUs"},
      {with_layout(R"("name": "-x", "shape": "1x1x1")"), "/layouts/0/name must be a text"},
  };
  for (const auto& [text, expected] : cases) {
    EXPECT_THAT(refusal_of_layout(text), StartsWith(expected)) << text;
  }
}

TEST(LayoutJson, RefusesWhatContradictsItself) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {with(R"("hosts": [{"name": "a", "gpus": 1}, {"name": "a", "gpus": 1}])"),
       "/hosts/1/name: there is another host 'a'"},
      {with(R"("hosts": [{"name": "a", "gpus": 1}, {"name": "b", "address": "a", "gpus": 1}])"),
       "/hosts/1/address: another host has 'a', too"},
      {with_host(R"("cpus": "0", "numa": [{"cpus": "0", "gpus": [0, 1]}])"), "/hosts/0/cpus: "},
      {with_host(R"("numa": [{"cpus": "0", "gpus": [2]}])"),
       "/hosts/0/numa/0/gpus: there is no GPU 2: the host has 2"},
      {with_host(R"("numa": [{"cpus": "0", "gpus": [0]}])"), "/hosts/0/numa: each of the 2 GPUs"},
      {with_host(R"("numa": [{"cpus": "0", "gpus": [0]}, {"cpus": "0", "gpus": [1]}])"),
       "/hosts/0/numa/1/cpus: CPU 0 is in another"},
      {with_host(R"("numa": [{"cpus": "0", "gpus": [0]}, {"cpus": "1", "gpus": [0]}])"),
       "/hosts/0/numa/1/gpus: GPU 0 is there twice"},
      {R"({"layouts": [{"shape": "1x1x1"}, {"shape": "1x1x1"}]})",
       "/layouts/1/name: two layouts have the name '1x1x1'"},
      {with_layout(R"("name": "a")"), "/layouts/0: a layout has either a shape or jobs"},
      {with_layout(R"("shape": "1x1x1", "jobs": [{"instances": [{"host": "a", "ranks": 1}]}])"),
       "/layouts/0: a layout has either a shape or jobs"},
      {with_layout(R"("name": "a", "jobs": [{"instances": []}])"),
       "/layouts/0/jobs/0/instances: a job needs at least one"},
      {with_layout(R"("name": "a", "jobs": [{"instances": [{"host": "a", "gpus": [0],
                                                                    "ranks": 1}]}])"),
       "/layouts/0/jobs/0/instances/0: it has either GPUs or"},
  };
  for (const auto& [text, expected] : cases) {
    EXPECT_THAT(refusal_of_layout(text), StartsWith(expected)) << text;
  }
}

TEST(LayoutJson, NamesTheFile) {
  const TemporaryFolder folder;
  const auto read = [](const std::filesystem::path& path) -> std::string {
    return refusal_of([&] { read_layout(path); });
  };
  EXPECT_EQ(read(folder.write("a.json", with(R"("repeats": 1)"))), "");
  EXPECT_THAT(read(folder.write("b.json", "{}")), HasSubstr("b.json: /layouts must be there"));
  EXPECT_THAT(read(folder.path()), HasSubstr("it is a folder"));
  EXPECT_THAT(read(folder / "none.json"), HasSubstr("none.json: it cannot be read: No such file"));
  EXPECT_THAT(read("/dev/zero"), HasSubstr("it is larger than 1 MiB"));
}

}  // namespace
}  // namespace nearmetal
