"""How sweeps end: ranks that die or stand still, Ctrl-C, kills and closed outputs."""

import fcntl
import json
import os
import shlex
import signal
import time

import cli
import processes


class SweepEnd(cli.SweepTest):
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
        return process, self.ranks_that_train(process, 2)

    def ranks_that_train(self, process, number):
        """So many: one that trains has used a second of CPU, one that sets up has not."""
        def find():
            ranks = [rank for rank in processes.ranks_below(process.pid)
                     if cli.cpu_seconds(rank) > 1.5]
            return ranks if len(ranks) == number else None
        ranks = cli.wait_until(find, 60)
        self.assertIsNotNone(ranks, "the ranks did not start")
        return ranks

    def finish(self, process, ranks, within_seconds):
        start = time.monotonic()
        process.out, process.err = process.communicate(timeout=cli.limit(100))
        self.assertLess(time.monotonic() - start, cli.limit(within_seconds), process.err)
        self.assert_ended(ranks)

    def assert_ended(self, ranks):
        cli.wait_until(lambda: not any(map(processes.alive, ranks)), 15)
        self.assertEqual([rank for rank in ranks if processes.alive(rank)], [], "no process is left")

    def test_only_a_journal_that_the_report_holds_is_replaced(self):
        again = ("1x1x1", "--steps", "3", "--repeats", "1", "--force")
        self.assertEqual(self.sweep(*again).returncode, 0)
        notes = self.write("s.jsonl", "milk, eggs\n")
        os.utime(notes, (0, 0))  # older than the report
        self.assert_refused(self.sweep(*again), 9, "s.jsonl cannot be written: File exists")
        with open(notes, encoding="utf-8") as file:
            self.assertEqual(file.read(), "milk, eggs\n")

    def test_a_killed_rank_is_named_with_its_stage(self):
        process, ranks = self.start_long("1x1x2", "--repeats", "1", "--pipeline", "2",
                                         "--cuts", "layer2")
        os.kill(ranks[1], signal.SIGKILL)
        self.finish(process, ranks, 20)
        self.assertEqual(process.returncode, 6, process.err)
        failure = self.report("s.json")["arms"][0]["runs"][0]["failure"]
        self.assertIn("process rank 1", failure)
        self.assertIn("node " + os.uname().nodename.split(".")[0], failure)
        self.assertRegex(failure, r"; stage 1 of 2, (set-up|(warm-up|window), step \d+)\)")
        self.assertIn("signal 9", failure)

    def test_what_was_measured_is_kept_where_mpirun_alone_gets_the_signal(self):
        for after_seconds in (0.3, 2, 8, 32):  # the first step must be over: a busy machine takes long
            process, ranks = self.start_long("1x1x2", "--repeats", "1", "--force")
            launcher, = (pid for pid in processes.children_of(process.pid)
                         if set(processes.children_of(pid)) & set(ranks))
            time.sleep(after_seconds)
            os.kill(launcher, signal.SIGTERM)
            self.finish(process, ranks, cli.limit(30))
            self.assertEqual(process.returncode, 6, process.err)
            self.assertEqual(self.call("validate", "s.json").returncode, 0)
            run, = self.report("s.json")["arms"][0]["runs"]
            self.assertEqual(run["status"], "failed")
            self.assertNotIn("complete", run["failure"])
            if run["ranks"] and run["ranks"][0]["step_seconds"]:
                return self.assertIn("interrupted", run["failure"])
        return self.fail("nothing is kept: " + run["failure"])

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
        self.assertNotIn("no step within", self.report("s.json")["arms"][0]["runs"][0]["failure"])
        self.assertEqual(process.returncode, 6, "it told no result: " + process.err)

    def test_a_rank_that_hangs_is_a_time_out(self):
        layouts = {"layouts": [{"name": "two", "shape": "1x1x2"}], "repeats": 1,
                   "limits": {"step_seconds": 3}}
        process, ranks = self.start_long(self.write("layouts.json", json.dumps(layouts)))
        stopped = processes.rank_of(ranks[1])
        os.kill(ranks[1], signal.SIGSTOP)
        self.finish(process, ranks, 30)
        self.assertEqual(process.returncode, 7, process.err)
        failure = self.report("s.json")["arms"][0]["runs"][0]["failure"]
        self.assertRegex(failure, "no (step|sign of life) for ")
        self.assertIn(f": rank {stopped} ({os.uname().nodename}) is silent", failure)
        self.assertRegex(failure, r" \((set-up|(warm-up|window), step \d+)\)$")

    def test_ctrl_c_between_jobs_in_turn_is_no_complete_run(self):
        job = {"instances": [{"host": "localhost", "ranks": 1}], "share": {"way": "serial"}}
        layouts = {"hosts": [{"name": "localhost", "gpus": 0}], "repeats": 1,
                   "layouts": [{"name": "both", "jobs": [job, job]}]}
        document = self.write("layouts.json", json.dumps(layouts))
        process = self.start("sweep", document, *cli.TINY_WORK, "--output", "s.json",
                             "--duration", "600")
        self.ranks_that_train(process, 1)
        self.assertEqual(self.interrupted(process)["arms"][0]["runs"][0]["status"], "partial")
        with open(self.path("s.jsonl"), encoding="utf-8") as file:
            self.assertEqual(len(file.readlines()), 1, "the plan's hash, and no run")

    def test_ctrl_c_keeps_what_was_measured_and_resume_goes_on(self):
        process = self.start("sweep", *cli.TINY_WORK, "--output", "s.json", "--steps", "400",
                             "--repeats", "2", "1x1x1")
        for line in process.stderr:
            if line.startswith("run 2 of 2"):
                break
        self.assertTrue(cli.wait_until(lambda: processes.ranks_below(process.pid), 60))
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
        late = late.replace('"status":"complete"', '"status":"failed"')
        self.assertNotEqual(late, lines[1])
        ended_late = self.write("late.jsonl", lines[0] + late)
        asked = [*cli.TINY_WORK, "--steps", "400", "--repeats", "2", "1x1x1"]
        process = self.call("sweep", *asked, "--resume", ended_late, "--output", "late.json",
                            "--keep-failed")
        self.assertEqual(process.returncode, 7, "of the run before: " + process.err)
        for number, (whole, damage, why) in enumerate((
                ('"environment":0', '"environment":9', "line 2: it contradicts itself: /arms/0/runs/0/"),
                ('"runs":[', '"runs":[],"other":[', "line 2: its report is not of one run"),
                ('"repeat":1', '"repeat":99', "line 2: run 99 of '1x1x1' (layout 0) is not asked for"),
                ('"layout":0', '"layout":1', "line 2: run 1 of '1x1x1' (layout 1) is not asked for"),
                ('"name":"1x1x1"', '"name":"1x1x2"', "line 2: /report/arms/0/name is '1x1x2'"),
                ("\n", "\n" + lines[1], "line 3: run 1 of '1x1x1' (layout 0) is there twice"))):
            text = lines[0] + lines[1].replace(whole, damage, 1)
            damaged = self.write(f"damaged{number}.jsonl", text)
            process = self.call("sweep", *asked, "--resume", damaged, "--output", "damaged.json")
            self.assert_refused(process, 5, damaged, why)
            with open(damaged, encoding="utf-8") as file:
                self.assertEqual(file.read(), text, "nothing is lost")
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

    def test_a_killed_sweep_leaves_no_process(self):
        process, ranks = self.start_long("1x1x2", "--repeats", "1")
        process.kill()
        process.communicate(timeout=cli.limit(10))
        self.assert_ended(ranks)

    def test_a_closed_output_does_not_damage_the_journal(self):
        def close_both():
            os.close(1)
            os.close(2)
        process = self.start("sweep", *cli.TINY_WORK, "--output", "s.json", "--duration", "600",
                             "1x1x1", preexec_fn=close_both)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        self.assertTrue(cli.wait_until(lambda: os.path.exists(self.path("s.jsonl")), 10))
        taken = [os.readlink(f"/proc/{process.pid}/fd/{standard}") for standard in (1, 2)]
        self.assertEqual(taken, ["/dev/null", "/dev/null"], "not the journal")


if __name__ == "__main__":
    cli.main()
