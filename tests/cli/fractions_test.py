"""Jobs that share a GPU, or CPUs: what is planned, run and told without one; sharing_test.py has one."""

import json
import os
import unittest

import jsonschema

import cli

# Stands in for NVIDIA's program: a daemon until another of it says quit.
FAKE_MPS_CONTROL = """#!/bin/sh
pipe=$CUDA_MPS_PIPE_DIRECTORY
if [ "$1" = -f ]; then
  mkfifo "$pipe/control"
  read order <"$pipe/control"
  exit 0
fi
read order
echo "$order" >"$pipe/control"
"""


@cli.failed_jobs_end_at_once
class Fractions(cli.SweepTest):
    def plan(self, *arguments):
        process = self.call("plan", *arguments)
        self.assertEqual((process.returncode, process.err), (0, ""), arguments)
        return process.out

    def with_mps(self, control):
        """An environment in which this script stands in for NVIDIA's program."""
        os.mkdir(self.path("bin"))
        os.chmod(self.write("bin/nvidia-cuda-mps-control", control), 0o755)
        env = cli.clean_environment()
        env["PATH"] = self.path("bin") + ":" + env["PATH"]
        return env

    def runs_in(self, journal):
        """Those that a journal holds, after its first line; 0 where there is none yet."""
        try:
            with open(self.path(journal), encoding="utf-8") as file:
                return max(0, file.read().count("\n") - 1)
        except FileNotFoundError:
            return 0

    def test_fractions_are_planned_and_are_for_sweep_alone(self):
        schema = json.loads(self.call("schema", "plan").out)
        text = self.plan("--fractions", "3", "--hosts", "localhost:1")
        self.assertIn("3 jobs one after another", text)
        self.assertIn("3 jobs at once in time slices", text)
        self.assertIn("3 jobs, MIG: unsupported: ", text)
        plan = json.loads(self.plan("--fractions", "3", "--hosts", "localhost:1", "--format", "json"))
        jsonschema.validate(plan, schema)
        slices = next(one for one in plan["layouts"] if one["share"] == "timeslice")
        for job in slices["jobs"]:
            self.assertEqual(job["ranks"][0]["gpu"], 0)
            self.assertIn("--sharers=3", job["command"])
            self.assertNotIn("--through-mps", job["command"])
            self.assertIn("--batch=64", job["command"])
        self.assertIn("3 jobs, MIG", [one["name"] for one in plan["unsupported"]])
        noisy = json.loads(self.plan("--fractions", "3", "--neighbours", "pcie", "--hosts",
                                     "localhost:1", "--format", "json"))
        jsonschema.validate(noisy, schema)
        words = noisy["layouts"][1]["jobs"][2]["command"]
        self.assertEqual(words[words.index("stress"):],
                         ["stress", "pcie", "--device=cuda", "--conducted"])
        away = json.loads(self.plan("--fractions", "3", "--neighbours", "pcie", "--hosts", "vm9:1",
                                    "--format", "json"))
        self.assertEqual([one["name"] for one in away["unsupported"]],
                         ["1 job, 2 pcie, MPS", "1 job, 2 pcie, MPS 33 percent",
                          "1 job, 2 pcie, SMs 33 percent", "alone, MPS 33 percent",
                          "alone, SMs 33 percent", "1 job, 2 pcie, MIG"])
        self.assert_refused(self.call("plan", "1x1x1", "--neighbours", "pcie"), 2, "--fractions")
        self.assert_refused(self.call("plan", "--fractions", "3", "--format", "sh"), 2,
                            "serial", "nearmetal sweep")

    def test_fractions_share_what_there_is_in_every_way(self):
        cpus = ["--hosts", self.write("hosts", "localhost slots=0\n")]
        process = self.sweep("--fractions", "2", "--repeats", "2", "--steps", "60", *cpus)
        self.assertEqual(process.returncode, 0, process.err)
        self.assertEqual(self.call("validate", "s.json").returncode, 0)
        arms = {arm["name"]: arm for arm in self.report("s.json")["arms"]}
        self.assertEqual({name: arm["share"] and arm["share"]["way"] for name, arm in arms.items()},
                         {"alone": "alone", "2 jobs, serial": "serial",
                          "2 jobs, time slices": "timeslice", "2 jobs, MPS": None,
                          "2 jobs, SMs": None, "2 jobs, MIG": None})
        self.assertEqual(arms["2 jobs, MPS"]["unsupported"], "there is no GPU")
        for run in arms["2 jobs, serial"]["runs"]:
            first, second = run["ranks"]
            end = first["window_start_unix_seconds"] + sum(first["step_seconds"][-60:])
            self.assertGreater(second["window_start_unix_seconds"], end, "one after another")
            self.assertEqual(run["window"]["images"], 2 * 60 * 2)
        for run in arms["2 jobs, time slices"]["runs"]:
            self.assertEqual(len(run["jobs"]), 2)
            starts = [rank["window_start_unix_seconds"] for rank in run["ranks"]]
            ends = [start + sum(rank["step_seconds"][-60:]) for start, rank in zip(starts, run["ranks"])]
            self.assertLess(max(starts), min(ends), "at once")
            self.assertAlmostEqual(max(job["start_seconds"] for job in run["jobs"]),
                                   max(starts) - min(starts), places=4)
            # The machine may be shared, too: time stolen by its hypervisor is rightly warned of.
            warned = "".join(warning["text"] for warning in run["warnings"])
            self.assertNotIn("other processes", warned, "the other job is meant to be there")
        self.assertIn("x time slices", process.out)
        self.assertIn("2 jobs, MIG: unsupported: there is no GPU\n", process.out)

    def test_what_neighbours_did_is_reported(self):
        cpus = ["--hosts", self.write("hosts", "localhost slots=0\n")]
        process = self.sweep("--fractions", "2", "--neighbours", "copy,compute", "--repeats", "1",
                             "--steps", "60", *cpus)
        self.assertEqual(process.returncode, 0, process.err)
        self.assertEqual(self.call("validate", "s.json").returncode, 0)
        arms = {arm["name"]: arm for arm in self.report("s.json")["arms"]}
        for load, rate in (("copy", "bytes_per_second"), ("compute", "flops_per_second")):
            arm = arms[f"1 job, 1 {load}, time slices"]
            self.assertEqual(arm["share"]["jobs"], 1)
            self.assertEqual(arm["share"]["neighbours"], [load])
            run = arm["runs"][0]
            self.assertEqual(run["status"], "complete", run["failure"])
            self.assertEqual([one["load"] for one in run["neighbours"]], [load])
            self.assertGreater(run["neighbours"][0][rate], 1e6)
        self.assertEqual({name: arm["unsupported"] for name, arm in arms.items()
                          if arm["share"] is None},
                         {f"1 job, 1 {load}, {way}": (
                             "SMs are reserved through MPS: " * (way == "SMs") + "there is no GPU")
                          for load in ("copy", "compute") for way in ("MPS", "SMs", "MIG")})
        self.assertIn("What the neighbours did", process.out)
        self.assertRegex(process.out, r"1 job, 1 copy, time slices +1 +copy +[0-9.]+ GB/s")

    @unittest.skipIf(os.path.exists("/proc/driver/nvidia/version"), "there is a GPU")
    def test_parts_that_are_unsupported_are_refused_by_name_or_reported(self):
        env = self.with_mps(FAKE_MPS_CONTROL)
        part = {"instances": [{"host": "localhost", "gpus": [0]}],
                "share": {"way": "sm", "threads_percent": 50}}
        layouts = {"hosts": [{"name": "localhost", "gpus": 1}],
                   "layouts": [{"name": "halves", "jobs": [part, part]}]}
        self.assert_refused(self.sweep_file(layouts, env=env), 8, "/layouts/0: ", "cuda")
        self.assertFalse(os.path.exists(self.path("s.jsonl")), "nothing was started")
        process = self.call("sweep", "--fractions", "2", "--repeats", "1", "--output", "s.json",
                            "--hosts", "localhost:1", env=env)
        self.assertEqual(process.returncode, 8, process.err)
        arms = {arm["name"]: arm for arm in self.report("s.json")["arms"]}
        for name in ("2 jobs, SMs 50 percent", "alone, SMs 50 percent"):
            self.assertIn("cuda", arms[name]["unsupported"])
            self.assertEqual(arms[name]["runs"], [])
        self.assertEqual(len(arms["2 jobs, MPS"]["runs"]), 1)

    def test_a_batch_of_each_job_for_itself_is_refused(self):
        self.assert_refused(self.call("plan", "--fractions", "2", "--batch", "auto"), 2,
                            "need a batch that is known")
        plan = self.call("plan", "1x1x1", "--batch", "auto", "--hosts", "a:1")
        self.assertEqual(plan.returncode, 0, plan.err)

    def test_without_a_gpu_no_neighbour_copies_to_one(self):
        cpus = ["--hosts", self.write("hosts", "localhost slots=0\n")]
        self.assert_refused(self.sweep("--fractions", "2", "--neighbours", "pcie", *cpus), 2,
                            "/stress: without a GPU there is nothing to copy to")

    def test_what_shares_by_mps_needs_a_gpu_and_its_daemon(self):
        host = {"name": "localhost", "gpus": 0}
        job = {"instances": [{"host": "localhost", "ranks": 1}], "share": {"way": "mps"}}
        layouts = {"hosts": [host], "layouts": [{"name": "both", "jobs": [job, job]}]}
        self.assert_refused(self.sweep_file(layouts), 8, "/layouts/0", "MPS needs a GPU")
        host["gpus"], job["instances"] = 1, [{"host": "localhost", "gpus": [0]}]
        no_driver = {**cli.clean_environment(), "PATH": "/nowhere"}
        self.assert_refused(self.sweep_file(layouts, env=no_driver), 8, "nvidia-cuda-mps-control")
        host["address"] = "192.0.2.1"
        self.assert_refused(self.sweep_file(layouts), 2, "on this machine alone")
        self.assertEqual([name for name in os.listdir(self.folder) if name.startswith("s.")], [])

    @unittest.skipIf(os.path.exists("/proc/driver/nvidia/version"), "there is a GPU")
    def test_what_a_probe_says_does_not_change_the_plan_that_is_resumed(self):
        env = self.with_mps("#!/bin/sh\necho \"no daemon at $(date +%N)\"\nexit 1\n")
        asked = ["sweep", "--fractions", "2", "--repeats", "2", "--hosts", "localhost:1", "--quiet"]
        process = self.start(*asked, "--output", "s.json", env=env)
        self.addCleanup(process.communicate)
        cli.wait_until(lambda: self.runs_in("s.jsonl") >= 1, 60)
        process.kill()
        process.wait()
        done = self.runs_in("s.jsonl")
        self.assertTrue(1 <= done < 2 * 6, done)
        process = self.call(*asked, "--resume", "s.jsonl", "--output", "t.json", env=env)
        self.assertEqual(process.returncode, 8, process.err)
        arms = {arm["name"]: arm for arm in self.report("t.json")["arms"]}
        self.assertIn("no daemon at", arms["2 jobs, SMs 50 percent"]["unsupported"])
        self.assertEqual(len(arms["2 jobs, serial"]["runs"]), 2)


if __name__ == "__main__":
    cli.main()
