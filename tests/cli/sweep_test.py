"""Sweeps over layouts of CPU ranks on this machine, with real launches: what they report, and what
happens when a rank dies, stands still or is too slow, or the sweep itself is ended."""

import fcntl
import hashlib
import json
import os
import shlex
import signal
import subprocess
import time

import cli
import made_up

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


def children_of(pid):
    found = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, check=False)
    return [int(child) for child in found.stdout.split()]


def ranks_below(pid):
    """Processes of `nearmetal run` that descend from this one."""
    ranks = []
    for child in children_of(pid):
        try:
            with open(f"/proc/{child}/cmdline", "rb") as file:
                program = os.path.basename(file.read().split(b"\0")[0])
        except (FileNotFoundError, ProcessLookupError):
            continue  # it ended meanwhile, as shells on the way to a rank do
        ranks += [child] if program == b"nearmetal" else []
        ranks += ranks_below(child)
    return ranks


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


class Sweep(cli.SweepTest):
    def interrupted(self, process):
        """The report of a sweep after Ctrl-C."""
        process.send_signal(signal.SIGINT)
        process.out, process.err = process.communicate(timeout=cli.limit(60))
        self.assertEqual(process.returncode, 130, process.err)
        report = self.report("s.json")
        self.assertEqual((report["status"], report["exit_code"]), ("partial", 130))
        return report

    def start_long(self, *arguments):
        """A sweep whose first job is in its steps; the ranks of that job."""
        process = self.start("sweep", *cli.TINY_WORK, "--output", "s.json", "--duration", "600",
                             *arguments)
        ranks = []
        for _ in range(600):
            ranks = ranks_below(process.pid)
            # A rank that trains has used a second of CPU, a rank that sets up has not.
            if len(ranks) == 2 and all(cli.cpu_seconds(rank) > 1.5 for rank in ranks):
                return process, ranks
            time.sleep(0.1)
        self.fail("the ranks did not start")

    @staticmethod
    def rank_of(pid):
        with open(f"/proc/{pid}/environ", "rb") as file:
            variables = file.read().split(b"\0")
        name = b"OMPI_COMM_WORLD_RANK="
        return next(int(text[len(name):]) for text in variables if text.startswith(name))

    def finish(self, process, ranks, within_seconds):
        start = time.monotonic()
        process.out, process.err = process.communicate(timeout=cli.limit(100))
        self.assertLess(time.monotonic() - start, within_seconds, process.err)
        time.sleep(0.5)
        self.assertEqual([rank for rank in ranks if alive(rank)], [], "no process is left")

    def test_layouts_repeats_and_concurrent_jobs(self):
        process = self.sweep("1x1x1", "2*(1x1x1)", "--repeats", "2", "--steps", "20")
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
                    sum(rank["step_seconds"][-20:]) for rank in run["ranks"]]
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
        process = self.sweep("2*(1x1x1)", "--repeats", "1", "--steps", "5", *evidence)
        self.assertEqual(process.returncode, 0, process.err)
        report = self.report("s.json")
        self.assertEqual(report["invocation"]["config"]["host_facts"]["value"], "facts.json")
        environment = report["environments"][0]
        self.assertEqual(environment["host_name"], "(left out)")
        self.assertEqual(environment["host_facts"], {"firmware": "1.2"})
        for rank in report["arms"][0]["runs"][0]["ranks"]:
            self.assertIsNone(rank["monitoring"])

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

    def test_what_a_job_tells_is_not_believed(self):
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
        for run, why in zip(runs, ("not of one run", "environment is 9", "not tell of all ranks")):
            self.assertIn(why, run["failure"])
        self.assertEqual(self.call("validate", "s.json").returncode, 0)
        self.assertNotIn("\033", process.out + process.err)

    def test_a_killed_rank_is_named(self):
        process, ranks = self.start_long("1x1x2", "--repeats", "1")
        os.kill(ranks[1], signal.SIGKILL)
        self.finish(process, ranks, 20)
        self.assertEqual(process.returncode, 6, process.err)
        failure = self.report("s.json")["arms"][0]["runs"][0]["failure"]
        self.assertIn("process rank 1", failure)
        self.assertIn("node " + os.uname().nodename.split(".")[0], failure)
        self.assertRegex(failure, r"; (set-up|(warm-up|window), step \d+)\)")
        self.assertIn("signal 9", failure)

    def test_a_proof_that_takes_long_is_not_taken_for_no_step(self):
        # Stands for a job that proves its result beyond the time in which it had to begin.
        program = self.write("proves", """#!/bin/sh
tell() {
  echo '{"event": "progress", "rank": 0, "host": "here", "phase": "'$1'", "steps": '$2',' \
    '"images_per_second": 1, "report": null, "neighbour": null}'
}
tell window 5
for second in 1 2 3 4; do tell proof 0; sleep 1; done
""")
        os.chmod(program, 0o755)
        process = self.sweep_file({
            "layouts": [{"name": "one", "shape": "1x1x1"}], "repeats": 1,
            "launcher": {"program": program}, "limits": {"start_seconds": 3}})
        failure = self.report("s.json")["arms"][0]["runs"][0]["failure"]
        self.assertNotIn("no step within", failure)
        self.assertEqual(process.returncode, 6, "it told no result: " + process.err)

    def test_a_rank_that_stands_still_is_a_time_out(self):
        layouts = {"layouts": [{"name": "two", "shape": "1x1x2"}], "repeats": 1,
                   "limits": {"step_seconds": 3}}
        process, ranks = self.start_long(self.write("layouts.json", json.dumps(layouts)))
        stopped = self.rank_of(ranks[1])
        os.kill(ranks[1], signal.SIGSTOP)
        self.finish(process, ranks, 30)
        self.assertEqual(process.returncode, 7, process.err)
        failure = self.report("s.json")["arms"][0]["runs"][0]["failure"]
        self.assertRegex(failure, "no (step|sign of life) for ")
        self.assertIn(f": rank {stopped} ({os.uname().nodename}) is silent", failure)
        self.assertRegex(failure, r" \((set-up|(warm-up|window), step \d+)\)$")

    def test_expectations_are_held_against_what_ranks_find(self):
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

    def test_strong_scaling_is_told_from_weak(self):
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

    def test_ctrl_c_between_jobs_in_turn_is_no_complete_run(self):
        job = {"instances": [{"host": "localhost", "ranks": 1}], "share": {"way": "serial"}}
        layouts = {"hosts": [{"name": "localhost", "gpus": 0}], "repeats": 1,
                   "layouts": [{"name": "both", "jobs": [job, job]}]}
        document = self.write("layouts.json", json.dumps(layouts))
        process = self.start("sweep", document, *cli.TINY_WORK, "--output", "s.json",
                             "--duration", "600")
        for _ in range(300):
            if any(cli.cpu_seconds(rank) > 1.5 for rank in ranks_below(process.pid)):
                break
            time.sleep(0.1)
        report = self.interrupted(process)
        self.assertEqual(report["arms"][0]["runs"][0]["status"], "partial")
        with open(self.path("s.jsonl"), encoding="utf-8") as file:
            self.assertEqual(len(file.readlines()), 1, "the plan's hash, and no run")

    def test_ctrl_c_keeps_what_was_measured_and_resume_goes_on(self):
        process = self.start("sweep", *cli.TINY_WORK, "--output", "s.json", "--steps", "400",
                             "--repeats", "2", "1x1x1")
        for line in process.stderr:
            if line.startswith("run 2 of 2"):
                break
        time.sleep(1)
        report = self.interrupted(process)
        told = process.err.partition("go on with: ")[2]
        self.assertEqual(report["arms"][0]["runs"][0]["status"], "complete")
        journal = self.path("s.jsonl")
        with open(journal, encoding="utf-8") as file:
            lines = file.readlines()
        with open(journal, "w", encoding="utf-8") as file:  # killed while it wrote the second run
            file.write("".join(lines[:2]) + '{"layout": 0, "rep')
        with open(journal, encoding="utf-8") as other:
            fcntl.flock(other, fcntl.LOCK_EX)
            self.assert_refused(self.call(*shlex.split(told)[1:]), 9, "by another sweep")
        late = lines[1].replace('"exit_code":0', '"exit_code":7')
        self.assertNotEqual(late, lines[1])
        ended_late = self.write("late.jsonl", lines[0] + late)
        asked = [*cli.TINY_WORK, "--steps", "400", "--repeats", "2", "1x1x1"]
        process = self.call("sweep", *asked, "--resume", ended_late, "--output", "late.json",
                            "--keep-failed")
        self.assertEqual(process.returncode, 7, "of the run before: " + process.err)
        damaged = lines[1].replace('"environment":0', '"environment":9')
        damaged = self.write("damaged.jsonl", lines[0] + damaged)
        process = self.call("sweep", *asked, "--resume", damaged, "--output", "damaged.json")
        self.assert_refused(process, 5, "damaged.jsonl line 2", "environment is 9")
        process = self.sweep("--steps", "401", "--repeats", "2", "1x1x1", "--resume", journal,
                             "--force")
        self.assert_refused(process, 2, "another plan: give the same layouts, options and files as before",
                            " ".join(["sweep", *asked]) + f", and --resume {journal}\n")
        older = self.write("older.jsonl", lines[0].replace('"1.3"', '"1.1"'))
        process = self.sweep("--steps", "401", "1x1x1", "--resume", older, "--force")
        self.assert_refused(process, 2, "a journal of version 1.1: resume it with the nearmetal that wrote it, ",
                            " ".join(asked))
        self.assertEqual(shlex.split(told)[1:], ["sweep", *asked, "--resume", "s.jsonl",
                                                 "--output", "s.json", "--force"])
        process = self.call(*shlex.split(told)[1:])
        self.assertEqual(process.returncode, 0, process.err)
        self.assertIn("1 run is in the journal", process.err)
        runs = self.report("s.json")["arms"][0]["runs"]
        self.assertEqual([run["status"] for run in runs], ["complete", "complete"])
        self.assertEqual(runs[0]["started_at"], report["arms"][0]["runs"][0]["started_at"])

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

    def test_a_killed_sweep_leaves_no_process(self):
        process, ranks = self.start_long("1x1x2", "--repeats", "1")
        process.kill()
        process.communicate(timeout=cli.limit(10))
        for _ in range(150):
            if not any(alive(rank) for rank in ranks):
                return
            time.sleep(0.1)
        self.fail("ranks are left")

    def test_a_closed_output_does_not_damage_the_journal(self):
        def close_both():
            os.close(1)
            os.close(2)
        process = self.start("sweep", *cli.TINY_WORK, "--output", "s.json", "--duration", "600",
                             "1x1x1", preexec_fn=close_both)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        for _ in range(200):
            if os.path.exists(self.path("s.jsonl")):
                break
            time.sleep(0.05)
        taken = [os.readlink(f"/proc/{process.pid}/fd/{standard}") for standard in (1, 2)]
        self.assertEqual(taken, ["/dev/null", "/dev/null"], "not the journal")

    def test_bad_input_starts_nothing(self):
        self.assert_refused(self.sweep("1x1"), 2, "1x1")
        self.assert_refused(self.sweep("1x1x1", "--fractions", "2"), 2, "--fractions")
        self.assert_refused(self.sweep("--fractions", "1"), 2, "--fractions", "2 to 64")
        self.assert_refused(self.sweep("--fractions", "2", "--batches", "2"), 2, "--batch and")
        self.assert_refused(self.call("sweep", "1x1x1", "--batches", "2"), 2, "--batches is for")
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
