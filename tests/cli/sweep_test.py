"""Sweeps over layouts of CPU ranks on this machine, with real launches: what they start and report."""

import hashlib
import json
import os
import shutil
import subprocess
import unittest

import cli
import made_up
import processes

# To be loaded before the C library: sets the clock 90 years back.
CLOCK_OF_1937 = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <time.h>
int clock_gettime(clockid_t clock, struct timespec *now) {
  int (*real)(clockid_t, struct timespec *) = dlsym(RTLD_NEXT, "clock_gettime");
  const int result = real(clock, now);
  if (clock == CLOCK_REALTIME && result == 0) now->tv_sec -= 90 * 365 * 86400L;
  return result;
}
"""

# Stands for nearmetal: changes its result by the seed.
LIAR = """#!/usr/bin/python3
import json, subprocess, sys
work = subprocess.Popen(sys.argv[1:], executable=EXECUTABLE, stdout=subprocess.PIPE, text=True)
for line in work.stdout:
    event = json.loads(line)
    if event["event"] == "result":
        runs = event["report"]["arms"][0]["runs"]
        if "--seed=1" in sys.argv:
            event["report"]["arms"] = []
        if "--seed=2" in sys.argv:
            runs[0]["ranks"][0]["environment"] = 9
        if "--seed=3" in sys.argv:
            runs[0]["ranks"] = []
        if "--seed=4" in sys.argv:
            print("\\033]0;owned\\007", file=sys.stderr)
            print("\\033[2J")
            sys.exit(3)
    print(json.dumps(event), flush=True)
"""


class Sweep(cli.SweepTest):
    def test_later_runs_take_the_cuts_of_the_first(self):
        process = self.start("sweep", "1x1x2", "--hosts", "localhost:0", *cli.TINY_WORK, "--pipeline",
                             "2", "--micro-batches", "2", "--repeats", "2", "--duration", "1",
                             "--output", "s.json")

        def commands_of_second():
            with open(self.path("s.jsonl"), encoding="utf-8") as journal:
                runs = journal.read().count("\n") - 1
            return runs and [processes.command_of(rank) for rank in processes.ranks_below(process.pid)]

        self.assertTrue(cli.wait_until(lambda: os.path.exists(self.path("s.jsonl")), 60))
        commands = cli.wait_until(commands_of_second, 60)
        process.communicate(timeout=cli.limit(60))
        arm, = self.report("s.json")["arms"]
        self.assertEqual([run["status"] for run in arm["runs"]], ["complete"] * 2)
        cuts = arm["config"]["cuts"]
        self.assertTrue(commands)
        for words in commands:
            self.assertIn(f"--cuts={cuts}", words)

    def test_the_slots_of_an_allocation_do_not_count_here(self):
        host = os.uname().nodename
        one_task = {"SLURM_JOB_ID": "5", "SLURM_JOBID": "5", "SLURM_NODELIST": host, "SLURM_NNODES": "1",
                    "SLURM_JOB_NUM_NODES": "1", "SLURM_JOB_NODELIST": host, "SLURM_TASKS_PER_NODE": "1"}
        # As Kubeflow's operator names the workers of a job.
        workers = {"OMPI_MCA_orte_default_hostfile": self.write("hostfile", "worker-0.job slots=1\n")}
        pbs = {"PBS_JOBID": "7.head", "PBS_NODEFILE": self.write("nodes", host + "\n")}
        for number, variables in enumerate((one_task, pbs, workers)):
            process = self.call("sweep", "1x1x2", "--hosts", "localhost:0", *cli.TINY_WORK, "--steps", "3",
                                "--repeats", "1", "--output", f"{number}.json",
                                env={**cli.clean_environment(), **variables})
            self.assertEqual(process.returncode, 0, process.err)

    def test_layouts_repeats_and_concurrent_jobs(self):
        process = self.sweep("1x1x1", "2*(1x1x1)", "--repeats", "2", "--steps", "100")
        self.assertEqual(process.returncode, 0, process.err)
        self.assertEqual(self.call("validate", "s.json").returncode, 0)
        report = self.report("s.json")
        self.assertEqual([arm["name"] for arm in report["arms"]], ["1x1x1", "2*(1x1x1)"])
        self.assertEqual([len(arm["runs"]) for arm in report["arms"]], [2, 2])
        self.assertEqual(len(report["environments"]), 1)
        for run in report["arms"][1]["runs"]:
            self.assertEqual([rank["rank"] for rank in run["ranks"]], [0, 1])
            jobs = [job["throughput_images_per_second"] for job in run["jobs"]]
            self.assertAlmostEqual(run["throughput_images_per_second"] / sum(jobs), 1)
            self.assertAlmostEqual(run["jain_fairness"],
                                   sum(jobs) ** 2 / (2 * sum(job ** 2 for job in jobs)))
            starts = [rank["window_start_unix_seconds"] for rank in run["ranks"]]
            ends = [rank["window_start_unix_seconds"] +
                    sum(rank["step_seconds"][-100:]) for rank in run["ranks"]]
            self.assertAlmostEqual(run["window"]["seconds"], min(ends) - max(starts), places=4)
        self.assertIn("2 in 2 jobs", process.out)
        self.assertFalse(os.path.exists(self.path("s.jsonl")), "the journal has served")
        again = self.call("compare", "s.json#1x1x1", "s.json#1x1x1")
        self.assertEqual(again.returncode, 0, again.err)

    def test_json_is_the_report_with_speedups(self):
        process = self.sweep("1x1x1", "1x1x2", "--repeats", "2", "--steps", "5", "--json")
        self.assertEqual(process.returncode, 0, process.err)
        report = json.loads(process.out)
        self.assertEqual(report, self.report("s.json"))
        one, two = report["arms"]
        self.assertEqual((one["speedup"]["against"], one["speedup"]["speedup"]), ("1x1x1", 1))
        speedup = two["speedup"]
        self.assertEqual((speedup["against"], speedup["ranks"]), ("1x1x1", 2))
        self.assertAlmostEqual(speedup["efficiency"], speedup["speedup"] / 2)
        self.assertLess(speedup["speedup_lower"], speedup["speedup"])
        self.assertLess(speedup["speedup"], speedup["speedup_upper"])

    def test_evidence_is_for_every_rank(self):
        with open(self.path("facts.json"), "w", encoding="utf-8") as file:
            json.dump({"firmware": "1.2"}, file)
        evidence = ["--monitor-hz", "0", "--no-host-info", "--host-facts", self.path("facts.json")]
        process = self.sweep("2*(1x1x1)", "--repeats", "1", "--duration", "0.5", *evidence)
        self.assertEqual(process.returncode, 0, process.err)
        report = self.report("s.json")
        self.assertEqual(report["invocation"]["config"]["host_facts"]["value"], "facts.json")
        environment = report["environments"][0]
        self.assertEqual(environment["host_name"], "(left out)")
        self.assertEqual(environment["host_facts"], {"firmware": "1.2"})
        for rank in report["arms"][0]["runs"][0]["ranks"]:
            self.assertIsNone(rank["monitoring"])

    @cli.failed_jobs_end_at_once
    def test_a_failing_layout_does_not_keep_the_others_from_running(self):
        layouts = {"layouts": [{"name": "too_large", "shape": "1x1x1",
                                "workload": {"batch": 60000, "steps": 3}},
                               {"name": "good", "shape": "1x1x1", "workload": {"steps": 3}}],
                   "repeats": 1, "order": "listed"}
        layouts["workload"] = {"model": "resnet20", "image_size": 32, "classes": 10, "batch": 2,
                               "threads": 1, "warmup": 2}
        process = self.sweep_file(layouts)
        self.assertEqual(process.returncode, 6, process.err)
        bad, good = self.report("s.json")["arms"]
        self.assertEqual((bad["runs"][0]["status"], good["runs"][0]["status"]),
                         ("failed", "complete"))
        self.assertIn("out of memory", bad["runs"][0]["failure"])
        self.assertIsNone(bad["runs"][0]["throughput_images_per_second"])
        self.assertGreater(good["runs"][0]["throughput_images_per_second"], 0)

    def test_a_layout_runs_the_build_that_it_names(self):
        other = self.write("other", f'#!/bin/sh\nexec {cli.EXECUTABLE} "$@"\n')
        os.chmod(other, 0o755)
        jobs = [{"instances": [{"host": "localhost", "ranks": 1}]}]
        layouts = {"hosts": [{"name": "localhost", "gpus": 0}], "repeats": 1,
                   "layouts": [{"name": "here", "jobs": jobs},
                               {"name": "other", "jobs": jobs, "executable": "other"}]}
        file = self.write("layouts.json", json.dumps(layouts))
        process = self.call("sweep", file, *cli.TINY_WORK, "--steps", "3", "--output", "s.json")
        self.assertEqual(process.returncode, 0, process.err)
        here, named = self.report("s.json")["arms"]
        self.assertIsNone(here["executable"])
        with open(other, "rb") as build:
            sha256 = hashlib.sha256(build.read()).hexdigest()
        self.assertEqual(named["executable"],
                         {"path": other, "sha256": sha256, "modules_sha256": {}})
        with open(other, "w", encoding="utf-8") as build:
            build.write(f'#!/bin/sh\necho >> {other}\nexec {cli.EXECUTABLE} "$@"\n')
        process = self.call("sweep", file, *cli.TINY_WORK, "--steps", "3", "--repeats", "2",
                            "--output", "t.json")
        self.assertEqual(process.returncode, 6, process.err)
        self.assertIn(f"{other} is another build than at the start", process.err)
        named = self.report("t.json")["arms"][1]
        self.assertEqual([run["status"] for run in named["runs"]], ["complete", "failed"])
        with open(other, "w", encoding="utf-8") as build:
            build.write(f'#!/bin/sh\n# anew\nexec {cli.EXECUTABLE} "$@"\n')
        go_on = ("sweep", file, *cli.TINY_WORK, "--steps", "3", "--repeats", "2", "--resume",
                 "t.jsonl", "--output", "t.json", "--force")
        self.assert_refused(self.call(*go_on), 2, f"holds runs of another build of {other}",
                            "--allow-other-build")
        process = self.call(*go_on, "--allow-other-build")
        self.assertEqual(process.returncode, 0, process.err)
        named = self.report("t.json")["arms"][1]
        self.assertEqual([run["status"] for run in named["runs"]], ["complete"] * 2)
        os.chmod(other, 0o644)
        self.assert_refused(self.call("sweep", file), 2, "/layouts/1/executable", other)

    def test_what_a_job_reports_is_not_trusted(self):
        liar = self.write("liar", LIAR.replace("EXECUTABLE", repr(cli.EXECUTABLE))
                          .replace("sys.argv[1:]", "['nearmetal', *sys.argv[1:]]"))
        os.chmod(liar, 0o755)
        jobs = [{"instances": [{"host": "localhost", "ranks": 1}]}]
        layouts = {"hosts": [{"name": "localhost", "gpus": 0}], "repeats": 1, "order": "listed",
                   "launcher": {"program": liar}, "layouts": [
                       {"name": str(seed), "jobs": jobs, "workload": {"seed": seed}}
                       for seed in range(1, 6)]}
        file = self.write("layouts.json", json.dumps(layouts))
        process = self.call("sweep", file, *cli.TINY_WORK, "--steps", "3", "--output", "s.json")
        self.assertEqual(process.returncode, 6, process.err)
        runs = [arm["runs"][0] for arm in self.report("s.json")["arms"]]
        self.assertEqual([run["status"] for run in runs], ["failed"] * 4 + ["complete"])
        for run, why in zip(runs, ("not of one run", "environment is 9", "lacks ranks")):
            self.assertIn(why, run["failure"])
        self.assertEqual(self.call("validate", "s.json").returncode, 0)
        self.assertNotIn("\033", process.out + process.err)

    def test_a_job_that_does_other_work_has_failed(self):
        turns = self.path("turns")
        liar = self.write("liar", f"""#!/bin/sh
echo >>{turns}
case $(wc -l <{turns}) in
  1) exec {cli.EXECUTABLE} "$@" --seed=7 --batch=4;;
  3) exec {cli.EXECUTABLE} "$@" --threads=1;;  # which nobody asked for
esac
exec {cli.EXECUTABLE} "$@"
""")
        os.chmod(liar, 0o755)
        work = {"model": "resnet20", "image_size": 32, "batch": 2, "steps": 2, "warmup": 1,
                "seed": 1}
        process = self.sweep_file({"launcher": {"program": liar}, "repeats": 3, "workload": work,
                                   "layouts": [{"name": "one", "shape": "1x1x1"}]})
        self.assertEqual(process.returncode, 6, process.err)
        self.assertRegex(process.err, "one failed: it did other work than it was started for: "
                                      "batch 4 instead of 2, seed 7 instead of 1\n")
        self.assertIn("one failed: it did other work than the runs before: threads 1 instead of 0\n",
                      process.err)
        arm, = self.report("s.json")["arms"]
        self.assertEqual([run["status"] for run in arm["runs"]], ["failed", "complete", "failed"])
        for run in arm["runs"]:
            self.assertEqual(run["window"]["steps"], 2)
            self.assertGreater(len(run["ranks"][0]["step_seconds"]), 2)
        self.assertEqual([run["throughput_images_per_second"] is None for run in arm["runs"]],
                         [True, False, True])
        self.assertEqual(arm["config"]["batch"], 2)
        self.assertEqual(self.call("validate", "s.json").returncode, 0)
        self.assertIn(" in 1 run**", self.call("report", "s.json").out)

    @unittest.skipUnless(shutil.which("cc"), "there is no compiler")
    def test_a_clock_before_1970_loses_no_run(self):
        subprocess.run(["cc", "-shared", "-fPIC", "-o", self.path("clock.so"),
                        self.write("clock.c", CLOCK_OF_1937)], check=True)
        # With windows that are long enough to overlap on busy CPUs.
        process = self.sweep("1x1x1", "2*(1x1x1)", "--repeats", "1", "--steps", "40", env={
            **cli.clean_environment(), "LD_PRELOAD": self.path("clock.so"),
            "ASAN_OPTIONS": "verify_asan_link_order=0"})
        self.assertEqual(process.returncode, 0, process.err)
        runs = [arm["runs"][0] for arm in self.report("s.json")["arms"]]
        for run in runs:
            self.assertRegex(run["started_at"], "^19[3-6]")
            for rank in run["ranks"]:
                self.assertLess(rank["window_start_unix_seconds"], 0)
        self.assertEqual([len(run["ranks"]) for run in runs], [1, 2])
        self.assertEqual(self.call("validate", "s.json").returncode, 0)

    @cli.failed_jobs_end_at_once
    def test_expectations_are_checked_against_what_ranks_find(self):
        machine = json.loads(self.tiny("--steps", "1", "--json").out)["environments"][0][
            "virtualisation"]["machine"]
        other = "bare-metal" if machine == "vm" else "vm"
        layouts = {"layouts": [{"name": "wrong", "shape": "1x1x2", "expect": {"environment": other}},
                               {"name": "right", "shape": "1x1x1",
                                "expect": {"environment": machine}}],
                   "repeats": 1, "order": "listed"}
        process = self.sweep(self.write("layouts.json", json.dumps(layouts)), "--steps", "2")
        self.assertEqual(process.returncode, 10, process.err)
        wrong, right = (arm["runs"][0] for arm in self.report("s.json")["arms"])
        self.assertIn("/layouts/0/expect/environment: ", wrong["failure"])
        self.assertIn(os.uname().nodename, wrong["failure"])
        self.assertEqual(wrong["ranks"], [], "nothing was trained")
        self.assertEqual(right["status"], "complete")

    def test_strong_scaling_is_distinguished_from_weak(self):
        layouts = {"layouts": [{"shape": "1x1x1", "workload": {"global_batch": 4}},
                               {"shape": "1x1x2", "workload": {"global_batch": 4}}], "repeats": 1}
        document = self.write("layouts.json", json.dumps(layouts))
        at = cli.TINY_WORK.index("--batch")
        process = self.start("sweep", document, *cli.TINY_WORK[:at], *cli.TINY_WORK[at + 2:],
                             "--steps", "3", "--output", "s.json")
        process.out, process.err = process.communicate(timeout=cli.limit(100))
        self.assertEqual(process.returncode, 0, process.err)
        self.assertEqual([arm["scaling"] for arm in self.report("s.json")["arms"]], ["strong"] * 2)
        self.assertIn("strong, 4 in all", process.out)
        self.assertEqual(self.call("validate", "s.json").returncode, 0)

    def test_kernels_are_pinned_to_those_of_a_report(self):
        process = self.sweep("1x1x1", "1x1x2", "--repeats", "1", "--steps", "2", "--plan-cache",
                             "cache.json")
        self.assertEqual(process.returncode, 0, process.err)
        report = self.report("s.json")
        self.assertEqual(report["arms"][0]["config"]["plan_cache"], "cache.json")
        pinned = [*cli.TINY_WORK, "--steps", "2", "--repeats", "1", "--plans"]
        process = self.call("sweep", *pinned, "s.json", "1x1x2", "--output", "t.json")
        self.assertEqual(process.returncode, 0, process.err)
        arm = self.report("t.json")["arms"][0]
        self.assertEqual(arm["runs"][0]["plans"], report["arms"][1]["runs"][0]["plans"])
        self.assertEqual(arm["config"]["plans"], "s.json#1x1x2")
        process = self.call("plan", *pinned, "t.json", "2*(1x1x1)")
        self.assertEqual(process.out.count(" --plans=t.json "), 2, process.out + process.err)
        run = report["arms"][1]["runs"][0]
        run["plans"][0]["implementation"] = "another"
        run["ranks"][0]["plans_sha256"] = made_up.plans_sha256(run["plans"])
        self.write("other.json", json.dumps(report))
        process = self.call("sweep", *pinned, "other.json", "1x1x2", "--output", "u.json")
        self.assertEqual(process.returncode, 6, process.err)
        self.assertIn("the pinned plan another for ", process.err)

    def test_mpirun_starts_no_sweep(self):
        process = self.sweep("1x1x1", env={**cli.clean_environment(), "OMPI_COMM_WORLD_SIZE": "1"})
        self.assert_refused(process, 2, "without mpirun")

    def test_plans_of_other_work_start_nothing(self):
        self.assertEqual(self.tiny("--classes", "10", "--steps", "2", "--output", "a.json").returncode, 0)
        for arguments in (["--batch", "3"], ["--forward-only"], ["--model", "resnet34"]):
            process = self.sweep("1x1x1", *arguments, "--plans", "a.json")
            self.assert_refused(process, 2, "--plans: a.json holds no plans for `run --device=cpu")
        self.assert_refused(self.sweep("1x1x1", "--plans", "none.json"), 5, "none.json")
        self.assert_refused(self.sweep("1x1x1", "--plans", "a.json", "--plan-cache", "off"), 2,
                            "--plans pins all plans; leave --plan-cache out")
        layouts = {"layouts": [{"shape": "1x1x1", "workload": {"plans": "a.json"}}]}
        process = self.sweep(self.write("layouts.json", json.dumps(layouts)), "--batch", "3")
        self.assert_refused(process, 2, "layouts.json: --plans: a.json holds no plans")
        self.assertFalse(os.path.exists(self.path("s.jsonl")))

    def test_bad_input_starts_nothing(self):
        self.assert_refused(self.sweep("1x1"), 2, "1x1")
        self.assert_refused(self.sweep("1x1x1", "--fractions", "2"), 2, "--fractions")
        self.assert_refused(self.sweep("--fractions", "1"), 2, "--fractions", "2 to 64")
        self.assert_refused(self.sweep("--fractions", "2", "--batches", "2"), 2,
                            "--batches: --batch says it already")
        self.assert_refused(self.call("sweep", "1x1x1", "--batches", "2", "--grid", "batch=4"), 2,
                            "--batches: --grid batch says it already")
        self.assert_refused(self.call("sweep", "--fractions", "2", "--batches", "2,,4"), 2,
                            "--batches")
        self.assert_refused(self.call("sweep", "1x1x1", "--output", "-"), 2, "journal", "name a file")
        self.assert_refused(self.sweep("1x1x1", "--resume", "missing.jsonl"), 5, "missing.jsonl")
        self.write("s.json", "mine")
        self.assert_refused(self.sweep("1x1x1"), 9, "s.json")
        with open(self.path("s.json"), encoding="utf-8") as file:
            self.assertEqual(file.read(), "mine")


if __name__ == "__main__":
    cli.main()
