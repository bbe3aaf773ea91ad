"""Sweeps on MIG devices and vGPUs of a stand-in for NVML, and mig-parted files held against them."""

import json
import os
import textwrap
import unittest

import cli
from mig import ANSWERS, BALANCED, FAKE_NVML, OFF, SEVEN, TRAINS_ON_CPUS, Mig, mig_job, uuid

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
        return self.call("sweep", *arguments, "--model", "resnet20", "--image-size", "32",
                         "--batch", "2", "--warmup", "1", "--duration", "0.5",
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

    def test_kernels_are_chosen_once_for_the_same_work(self):
        jobs = [mig_job(profile="1g.18gb")]
        path = self.layouts({"name": "a", "jobs": jobs},
                            {"name": "b", "jobs": jobs, "workload": {"classes": 10}})
        with open(path, encoding="utf-8") as file:
            document = json.load(file)
        document["workload"] = {"classes": 10, "seed": 3}  # b gives them in another order
        process = self.sweep(SEVEN, self.write("layouts.json", json.dumps(document)),
                             "--repeats", "1")
        self.assertEqual(process.returncode, 0, process.err)
        with open(self.path("calls"), encoding="utf-8") as file:
            self.assertEqual(len(file.readlines()), 3, "a choice, and a run of each")

    def test_a_rank_that_finds_another_device_fails(self):
        path = self.layouts({"name": "x", "jobs": [mig_job(profile="1g.18gb")]})
        process = self.sweep(SEVEN, path, "--repeats", "1", KEEP_EXPECTATIONS="1")
        self.assertEqual(process.returncode, 10, process.err)
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

    def test_a_config_map_and_boards_in_filters_are_read(self):
        config = CONFIG.replace("0x233510DE", "0x233510DE:0x18BE10DE")
        head = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata:\n  config.yaml: |\n"
        path = self.write("cm.yaml", head + textwrap.indent(config, "    "))
        _, found = self.doctor(BALANCED, path + "#mixed")
        self.assertEqual([finding["severity"] for finding in found], ["ok"])
        _, found = self.doctor(SEVEN, path + "#mixed")
        self.assertIn("is in no entry of 'mixed'", found[0]["seen"], "of another board")
        self.assertIn("nvidia.com/mig.config=mixed", found[0]["fix"])

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
