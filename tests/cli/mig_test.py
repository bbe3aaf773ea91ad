"""MIG and vGPU on machines whose driver's library is a stand-in: plans, refusals, mig-parted files."""

import json
import os
import pathlib
import sys
import unittest

import jsonschema

import cli

# The folder of the stand-in for libnvidia-ml.so.1, and the answers that it can be given.
FAKE_NVML = sys.argv.pop(2)
ROOT = pathlib.Path(__file__).resolve().parents[2]
ANSWERS = ROOT / "tests/data/nvml"

TRAINS_ON_CPUS = (pathlib.Path(cli.EXECUTABLE).parent / "libnearmetal_cpu.so").exists()

OFF, SEVEN, BALANCED = "constructed_two_h200", "constructed_mig_7_of_1g", "constructed_mig_balanced"

CONFIG = """version: v1
mig-configs:
  all-1g.18gb:
    - devices: all
      mig-enabled: true
      mig-devices: {"1g.18gb": 7}
  mixed:
    - device-filter: "0x233510DE"
      devices: [0]
      mig-enabled: true
      mig-devices: {"1g.18gb": 2, "2g.35gb": 1, "3g.71gb": 1}
    - devices: [1]
      mig-enabled: false
"""


def uuid(number):
    return f"MIG-00000000-0000-0000-0000-{number:012}"


def mig_job(**share):
    return {"instances": [{"host": "localhost", "gpus": [0]}], "share": {"way": "mig", **share}}


class Mig(cli.CliTest):
    def on(self, answers, *arguments):
        """The program on a machine of which NVML answers so."""
        environment = {**cli.clean_environment(), "LD_LIBRARY_PATH": FAKE_NVML,
                       "FAKE_NVML_ANSWERS": str(ANSWERS / f"{answers}.txt")}
        return self.call(*arguments, env=environment)

    def plan(self, answers, *arguments):
        process = self.on(answers, "plan", *arguments, "--format", "json")
        self.assertEqual((process.returncode, process.err), (0, ""))
        plan = json.loads(process.out)
        jsonschema.validate(plan, json.loads(self.call("schema", "plan").out))
        return plan

    def layouts(self, *layouts, **more):
        document = {"hosts": [{"name": "localhost", "gpus": 1, **more}], "layouts": list(layouts)}
        schema = json.loads(self.call("schema", "layout").out)
        jsonschema.validate(document, schema)
        return self.write("layouts.json", json.dumps(document))


class Planned(Mig):
    def test_jobs_are_given_the_devices_that_are_there(self):
        path = self.layouts({"name": "both", "jobs": [mig_job(), mig_job(profile="2g.35gb")]})
        ranks = [job["ranks"][0] for job in self.plan(BALANCED, path)["layouts"][0]["jobs"]]
        self.assertEqual([rank["mig"]["profile"] for rank in ranks], ["3g.71gb", "2g.35gb"])
        self.assertEqual([rank["variables"]["CUDA_VISIBLE_DEVICES"] for rank in ranks],
                         [uuid(0), uuid(1)])
        self.assertEqual([rank["visible_gpu"] for rank in ranks], [0, 0])

    def test_fractions_take_even_devices_and_say_what_needs_a_whole_gpu(self):
        plan = self.plan(SEVEN, "--fractions", "4", "--hosts", "localhost:1")
        self.assertEqual([(layout["name"], len(layout["jobs"])) for layout in plan["layouts"]],
                         [("4 jobs, MIG 1g.18gb", 4), ("alone, MIG 1g.18gb", 1)])
        job = plan["layouts"][0]["jobs"][3]["command"]
        for word in ("--expect-mig=1g.18gb", "--expect-uuid=" + uuid(3), "--sharers=4"):
            self.assertIn(word, job)
        reasons = {one["name"]: one["reason"] for one in plan["unsupported"]}
        self.assertIn("nvidia-smi -i 0 -mig 0", reasons["4 jobs, serial"])
        self.assertIn("MIG is on", reasons["alone"])

    def test_devices_of_unknown_profiles_are_named(self):
        plan = self.plan("constructed_mig", "--fractions", "2", "--hosts", "localhost:1")
        self.assertEqual([layout["name"] for layout in plan["layouts"]],
                         [f"2 jobs, MIG {uuid(1)} + {uuid(2)}", f"alone, MIG {uuid(1)}",
                          f"alone, MIG {uuid(2)}"])

    def test_neighbours_disturb_from_devices_of_their_own(self):
        plan = self.plan(SEVEN, "--fractions", "3", "--neighbours", "copy", "--hosts",
                         "localhost:1")
        self.assertEqual([layout["name"] for layout in plan["layouts"]],
                         ["1 job, 2 copy, MIG 1g.18gb", "alone, MIG 1g.18gb"])
        trains, disturbs, _ = plan["layouts"][0]["jobs"]
        self.assertIn("--expect-uuid=" + uuid(0), trains["command"])
        self.assertIn("CUDA_VISIBLE_DEVICES=" + uuid(1), disturbs["command"])
        self.assertFalse([word for word in disturbs["command"] if word.startswith("--expect-")])

    def test_fractions_without_mig_say_what_an_administrator_runs(self):
        plan = self.plan(OFF, "--fractions", "4", "--hosts", "localhost:2")
        reasons = {one["name"]: one["reason"] for one in plan["unsupported"]}
        self.assertIn("nvidia-smi -i 0 -mig 1, then nvidia-smi mig -i 0 -cgi "
                      "1g.35gb,1g.35gb,1g.35gb,1g.35gb -C", reasons["4 jobs, MIG"])
        self.assertIn("4 jobs, serial", [layout["name"] for layout in plan["layouts"]])

    def test_of_other_hosts_devices_are_listed_or_named(self):
        job = {"instances": [{"host": "vm9", "gpus": [0]}], "share": {"way": "mig"}}
        document = {"hosts": [{"name": "vm9", "gpus": 1}],
                    "layouts": [{"name": "there", "jobs": [job]}]}
        path = self.write("a.json", json.dumps(document))
        self.assert_refused(self.on(BALANCED, "plan", path), 2, path, "vm9", "list its MIG devices")
        job["share"]["instance"] = uuid(1)
        path = self.write("a.json", json.dumps(document))
        rank = self.plan(BALANCED, path)["layouts"][0]["jobs"][0]["ranks"][0]
        self.assertEqual(rank["mig"], {"uuid": uuid(1), "profile": ""})


class Refused(Mig):
    def test_what_is_not_there_is_not_supported(self):
        path = self.layouts({"name": "x", "jobs": [mig_job(profile="1g.18gb")] * 2})
        for command in ("plan", "sweep"):
            self.assert_refused(self.on(OFF, command, path), 8, path + ": /layouts/0/jobs/0/share",
                                "MIG is off", "nvidia-smi -i 0 -mig 1, then nvidia-smi mig -i 0 "
                                "-cgi 1g.18gb,1g.18gb -C")
        path = self.layouts({"name": "x", "jobs": [mig_job(profile="3g.71gb")] * 2})
        self.assert_refused(self.on(BALANCED, "plan", path), 8, "no MIG device 3g.71gb",
                            "nvidia-smi mig -i 0 -cgi 3g.71gb -C")
        self.assert_refused(self.call("sweep", path), 8, path, "NVML")
        self.assert_refused(self.on(SEVEN, "plan", "--fractions", "8", "--hosts", "localhost:1"), 8,
                            "no 8 MIG devices")

    def test_where_mig_cannot_be_had_no_command_is_told(self):
        path = self.layouts({"name": "x", "jobs": [mig_job()]})
        process = self.on("constructed_vgpu", "plan", path)
        self.assert_refused(process, 8, "it is a vGPU")
        self.assertNotIn("nvidia-smi", process.err)

    def test_a_profile_that_the_gpu_has_not_is_wrong(self):
        path = self.layouts({"name": "x", "jobs": [mig_job(profile="1g.6gb")]})
        self.assert_refused(self.on(SEVEN, "plan", path), 2, path,
                            "no profile 1g.6gb on an NVIDIA H200; it has 1g.18gb, ")

    def test_a_list_that_is_not_true_here_starts_nothing(self):
        listed = [{"gpu": 0, "uuid": uuid(9), "profile": "1g.18gb"}]
        path = self.layouts({"name": "x", "jobs": [mig_job(profile="1g.18gb")]}, mig=listed)
        self.plan(OFF, path)
        self.assert_refused(self.on(SEVEN, "sweep", path), 8, path, uuid(9), "others that would do")
        self.assert_refused(self.on(OFF, "sweep", path), 8, path, "nvidia-smi -i 0 -mig 1")
        path = self.layouts({"name": "x", "jobs": [mig_job(instance=uuid(9))]}, mig=listed)
        self.assert_refused(self.on(OFF, "sweep", path), 8, path, "-cgi 1g.18gb -C")
        listed[0]["uuid"], listed[0]["profile"] = uuid(0), "2g.35gb"
        path = self.layouts({"name": "x", "jobs": [mig_job()]}, mig=listed)
        self.assert_refused(self.on(SEVEN, "sweep", path), 8, "has no MIG device 2g.35gb")

    def test_of_several_hosts_those_elsewhere_are_not_asked_for(self):
        hosts = [{"name": name, "gpus": 1, "mig": [{"gpu": 0, "uuid": one, "profile": "1g.18gb"}]}
                 for name, one in (("vm9", uuid(3)), ("localhost", uuid(9)))]
        job = mig_job(profile="1g.18gb")
        other = {**job, "instances": [{"host": "vm9", "gpus": [0]}]}
        path = self.write("a.json", json.dumps(
            {"hosts": hosts, "layouts": [{"name": "x", "jobs": [other, job]}]}))
        self.assert_refused(self.on(SEVEN, "sweep", path), 8, path, uuid(9), "others that would do")
        self.assert_refused(self.on(OFF, "sweep", path), 8, path, uuid(9), "/layouts/0/jobs/1/share",
                            "nvidia-smi -i 0 -mig 1")

    def test_other_ways_want_a_whole_gpu(self):
        for way, jobs in (("alone", 1), ("serial", 2), ("timeslice", 2), ("mps", 2)):
            with self.subTest(way=way):
                job = {**mig_job(), "share": {"way": way}}
                path = self.layouts({"name": "x", "jobs": [job] * jobs})
                self.plan(SEVEN, path)
                self.assert_refused(self.on(SEVEN, "sweep", path), 8,
                                    path + ": /layouts/0: GPU 0: MIG is on",
                                    "no whole GPU", "nvidia-smi -i 0 -mig 0")

    def test_a_script_holds_nothing_against_the_gpus(self):
        listed = [{"gpu": 0, "uuid": uuid(0), "profile": "1g.18gb"}]
        layout = {"name": "x", "jobs": [mig_job()], "expect": {"mig_config": "config.yaml#mixed"}}
        path = self.layouts(layout, mig=listed)
        for form in (("sh",), ("slurm",), ("mpijob", "--image", "registry/nearmetal:1")):
            self.assert_refused(self.on(SEVEN, "plan", path, "--format", *form), 2,
                                path + ": /layouts/0/expect/mig_config", "nearmetal sweep")

    def test_shares_of_other_ways_name_the_file_too(self):
        job = {"instances": [{"host": "vm9", "gpus": [0]}], "share": {"way": "mps"}}
        path = self.write("a.json", json.dumps({"hosts": [{"name": "vm9", "gpus": 1}],
                                                "layouts": [{"name": "x", "jobs": [job]}]}))
        self.assert_refused(self.on(OFF, "sweep", path), 2, path + ": /layouts/0: ", "MPS daemon")

    def test_expectations_of_run_are_checked(self):
        for option, wrong in (("--expect-mig", "small"), ("--expect-vgpu", "1g.18gb")):
            self.assert_refused(self.call("run", option, wrong), 2, option, "such as")

    @unittest.skipUnless(TRAINS_ON_CPUS, "this build has no CPU backend")
    def test_ranks_on_cpus_are_not_what_is_expected(self):
        for option, text in (("--expect-mig", "1g.18gb"), ("--expect-vgpu", "A100-40C"),
                             ("--expect-uuid", "GPU-1")):
            self.assert_refused(self.tiny("--steps", "1", "--quiet", option, text), 2, option, "on CPUs")


# In place of mpirun: notes the device and the expectations of its rank, which then trains on a CPU
# (where a job is told to fail, with them).
STAND_IN = """#!/usr/bin/env python3
import os, sys
words = sys.argv
at = words.index("run")
device = next(word for word in words if word.startswith("CUDA_VISIBLE_DEVICES="))
told = [word for word in words[at:] if word.startswith("--expect-")]
with open(os.environ["CALLS"], "a") as calls:
    print(device, *sorted(told), file=calls)
kept = [word for word in words[at:] if not word.startswith(("--device", "--ranks", "--expect-"))]
if os.environ.get("KEEP_EXPECTATIONS"):
    kept += told
os.execv(words[at - 1], [words[at - 1], *kept, "--device=cpu", "--precision=fp32", "--threads=1"])
"""


@unittest.skipUnless(TRAINS_ON_CPUS, "this build has no CPU backend")
class Swept(Mig):
    """What a sweep makes of jobs on MIG devices, whose training is a stand-in's."""

    def sweep(self, answers, *arguments, **variables):
        os.makedirs(self.path("bin"))
        os.chmod(self.write("bin/mpirun", STAND_IN), 0o755)
        environment = {**cli.clean_environment(), "LD_LIBRARY_PATH": FAKE_NVML,
                       "FAKE_NVML_ANSWERS": str(ANSWERS / f"{answers}.txt"),
                       "CALLS": self.path("calls"),
                       "PATH": self.path("bin") + ":" + os.environ["PATH"], **variables}
        return self.call("sweep", *arguments, "--model", "resnet18", "--image-size", "32",
                         "--batch", "2", "--warmup", "1", "--steps", "5",
                         "--output", "s.json", env=environment)

    def test_fractions_run_on_the_devices_that_are_there(self):
        process = self.sweep(SEVEN, "--fractions", "2", "--hosts", "localhost:1", "--repeats", "1")
        self.assertEqual(process.returncode, 0, process.err)
        self.assertEqual(self.call("validate", "s.json").returncode, 0)
        arms = {arm["name"]: arm for arm in self.report("s.json")["arms"]}
        share = arms["2 jobs, MIG 1g.18gb"]["share"]
        self.assertEqual((share["way"], share["jobs"], share["profiles"]),
                         ("mig", 2, ["1g.18gb"] * 2))
        self.assertEqual(len(arms["2 jobs, MIG 1g.18gb"]["runs"][0]["jobs"]), 2)
        self.assertIn("MIG is on", arms["2 jobs, serial"]["unsupported"])
        self.assertIn("alone, MIG 1g.18gb", process.out)
        with open(self.path("calls"), encoding="utf-8") as file:
            calls = set(file.read().splitlines())
        self.assertEqual(calls, {f"CUDA_VISIBLE_DEVICES={uuid(n)} --expect-mig=1g.18gb "
                                 f"--expect-uuid={uuid(n)}" for n in range(2)})

    def test_a_device_of_unknown_kind_is_its_own(self):
        job = {"instances": [{"host": "vm9", "gpus": [0]}]}
        layouts = [{"name": f"on {n}", "jobs": [
            {**job, "share": {"way": "mig", "instance": uuid(n)}}]} for n in range(2)]
        path = self.write("a.json", json.dumps({"hosts": [{"name": "vm9", "gpus": 1}],
                                                "layouts": layouts}))
        process = self.sweep(SEVEN, path, "--repeats", "1")
        self.assertEqual(process.returncode, 0, process.err)
        self.assertEqual([arm["share"]["profiles"] for arm in self.report("s.json")["arms"]],
                         [[uuid(0)], [uuid(1)]])

    def test_a_rank_that_finds_another_device_fails(self):
        path = self.layouts({"name": "x", "jobs": [mig_job(profile="1g.18gb")]})
        process = self.sweep(SEVEN, path, "--repeats", "1", KEEP_EXPECTATIONS="1")
        self.assertEqual(process.returncode, 2, process.err)
        failure = self.report("s.json")["arms"][0]["runs"][0]["failure"]
        self.assertIn("/layouts/0: ", failure)
        self.assertIn("--expect-uuid " + uuid(0), failure)


class MigParted(Mig):
    def doctor(self, answers, place):
        process = self.on(answers, "doctor", "--json", "--mig-config", place)
        return process, [finding for finding in json.loads(process.out)["findings"]
                         if finding["code"] == "mig_config"]

    def test_doctor_says_whether_mig_is_so(self):
        path = self.write("config.yaml", CONFIG)
        _, found = self.doctor(BALANCED, path + "#mixed")
        self.assertEqual([finding["severity"] for finding in found], ["ok"])
        process, found = self.doctor(BALANCED, path + "#all-1g.18gb")
        self.assertEqual(process.returncode, 8)
        self.assertEqual([finding["severity"] for finding in found], ["blocker"] * 2)
        self.assertIn("GPU 0 (NVIDIA H200) has 2 x 1g.18gb, 1 x 2g.35gb, 1 x 3g.71gb, not 7 x",
                      found[0]["seen"])
        self.assertIn("GPU 1 (NVIDIA H200) has MIG off", found[1]["seen"])
        self.assertEqual(found[0]["fix"], f"nvidia-mig-parted apply -f {path} -c all-1g.18gb")

    def test_a_sweep_starts_nothing_where_mig_is_another(self):
        config = self.write("config.yaml", CONFIG)
        layout = {"name": "x", "jobs": [mig_job()], "expect": {"mig_config": "config.yaml#mixed"}}
        path = self.layouts(layout)  # beside which the configuration lies
        self.assert_refused(self.on(SEVEN, "sweep", path), 8, "/layouts/0/expect/mig_config: GPU 0",
                            f"nvidia-mig-parted apply -f {config} -c mixed")
        path = self.layouts({"name": "x", "jobs": [mig_job()]})
        self.assert_refused(
            self.on(SEVEN, "sweep", path, "--mig-config", "config.yaml#mixed"), 8, "GPU 0")

    def test_a_wrong_file_is_one_line(self):
        bomb = "version: v1\na: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n"
        for text, fragment in ((bomb, "anchors"), ("[" * 500000, "too deeply"),
                               (" " * (1 << 21), "1 MiB"), ("version: v2\n", "version must be v1"),
                               (CONFIG + "more: 1\n", "'more' is not known"), ("a: [", "no YAML"),
                               (CONFIG, "say which")):
            with self.subTest(fragment=fragment):
                path = self.write("config.yaml", text)
                self.assert_refused(self.on(SEVEN, "doctor", "--mig-config", path), 2, path, fragment)
        self.assert_refused(self.on(SEVEN, "doctor", "--mig-config", "missing.yaml#a"), 2, "missing")


class Vgpu(Mig):
    def test_each_job_has_the_vgpu_of_its_vm(self):
        share = {"way": "vgpu", "profile": "A100-40C"}
        jobs = [{"instances": [{"host": host, "gpus": [0]}], "share": share}
                for host in ("vm0", "vm1")]
        document = {"hosts": [{"name": "vm0", "gpus": 1}, {"name": "vm1", "gpus": 1}],
                    "layouts": [{"name": "two VMs", "jobs": jobs}]}
        path = self.write("a.json", json.dumps(document))
        plan = self.plan(OFF, path)["layouts"][0]
        self.assertEqual(plan["share"], "vgpu")
        for job in plan["jobs"]:
            self.assertIn("--expect-vgpu=A100-40C", job["command"])
        self.assertIn("at once on the vGPUs of their VMs", self.call("plan", path).out)
        jobs[1]["instances"][0]["host"] = "vm0"
        path = self.write("a.json", json.dumps(document))
        self.assert_refused(self.call("plan", path), 2, path, "taken already")


if __name__ == "__main__":
    cli.main()
