"""rerun, and the repeats of gate --rerun, with real runs."""

import hashlib
import json
import os
import pathlib
import shutil
import signal

import cli
import made_up
import processes
from comparing import CompareTest


class Rerun(CompareTest):
    def test_the_recorded_work_is_done_again(self):
        made = self.tiny("--steps", "3", "--seed", "5", "--output", "old.json")
        self.assertEqual(made.returncode, 0, made.err)
        process = self.call("rerun", "old.json", "--runs", "2")
        self.assert_verdict(process, 0, "1|2")
        configs = [self.report(name)["invocation"]["config_sha256"]
                   for name in ("old.json", "rerun-1-of-old.report.json", "rerun-2-of-old.report.json")]
        self.assertEqual(len(set(configs)), 1)
        process = self.call("rerun", "old.json", "--runs", "1", "--json")
        self.assertEqual(json.loads(process.out)["schema"], "nearmetal/comparison")
        self.assertIn("throughput", process.err)

    def test_settings_are_printed_as_flags(self):
        made = self.tiny("--steps", "3", "--seed", "5", "--output", "old.json")
        self.assertEqual(made.returncode, 0, made.err)
        process = self.call("rerun", "old.json", "--flags")
        self.assertEqual(process.returncode, 0, process.err)
        flags = process.out.splitlines()
        self.assertIn("--seed=5", flags)
        self.assertEqual(self.call("run", *flags, "--output", "new.json").returncode, 0)
        old, new = (self.report(name)["invocation"]["config_sha256"] for name in ("old.json", "new.json"))
        self.assertEqual(old, new)
        self.assert_refused(self.call("rerun", "old.json", "--flags", "--runs", "2"), 2,
                            "--flags starts nothing: leave --runs")

    def test_names_that_were_left_out_stay_out(self):
        made = self.tiny("--steps", "3", "--no-host-info", "--output", "old.json")
        self.assertEqual(made.returncode, 0, made.err)
        self.assert_verdict(self.call("rerun", "old.json", "--runs", "1"), 0, "1|1")
        [machine] = self.report("rerun-1-of-old.report.json")["environments"]
        self.assertEqual((machine["host_name"], machine["boot_id"]), ("(left out)", None))

    def long_repeat(self, *command):
        """A repeat of thousands of steps in a session of its own, and the process of its run."""
        made = self.tiny("--steps", "3", "--output", "old.json")
        self.assertEqual(made.returncode, 0, made.err)
        self.source = self.report("old.json")
        os.mkdir(self.path("base"))
        self.runs("base/run", self.source["arms"][0]["runs"][0]["throughput_images_per_second"])
        self.source["invocation"]["config"]["steps"]["value"] = 100000
        self.write("old.json", json.dumps(made_up.settled(self.source)))
        repeat = self.start(*command, start_new_session=True)
        self.addCleanup(repeat.wait)
        self.addCleanup(repeat.kill)
        runs = cli.wait_until(lambda: [run for run in processes.ranks_below(repeat.pid)
                                       if processes.blocks(run, signal.SIGINT)], 30)
        self.assertTrue(runs, "no run was started")
        [child] = runs
        measuring = cli.cpu_seconds(child) + 1  # as it prepares and warms up in less
        self.assertTrue(cli.wait_until(lambda: cli.cpu_seconds(child) > measuring, 30),
                        "the run took no steps")
        return repeat, child

    def test_an_interrupt_keeps_what_the_repeat_measured(self):
        for number, code in ((signal.SIGINT, 130), (signal.SIGHUP, 129)):
            repeat, _ = self.long_repeat("rerun", "old.json", "--runs", "2")
            os.killpg(repeat.pid, number)
            error = repeat.communicate(timeout=cli.limit(60))[1]
            self.assertEqual(repeat.returncode, code, error)
            self.assertIn("the repeat was stopped; what it measured is in ./rerun-1-of-old", error)
            kept = self.report("rerun-1-of-old.report.json")
            self.assertEqual((kept["status"], kept["exit_code"]), ("partial", code))
            self.assertEqual([name for name in os.listdir(self.folder) if name[0] == "."], [])
            shutil.rmtree(self.path("base"))
            for name in ("old.json", "rerun-1-of-old.report.json"):
                os.remove(self.path(name))

    def test_a_repeat_that_fails_is_no_verdict(self):
        repeat, child = self.long_repeat("gate", "base", "old.json", "--rerun", "2")
        os.kill(child, signal.SIGKILL)
        error = repeat.communicate(timeout=cli.limit(60))[1]
        self.assertEqual(repeat.returncode, 6, error)
        self.assertIn("the repeat failed: it was killed (signal 9", error)

    def test_what_is_not_complete_is_refused_before_it_runs(self):
        def interrupt(report, run):
            report["status"] = run["status"] = "partial"
            report["exit_code"] = 130
        partial = self.made("partial.json", 1000, 0, interrupt)
        self.assert_refused(self.call("rerun", partial), 5, "partial.json", "no complete run")
        self.assertEqual(os.listdir(self.folder), ["partial.json"])

    def test_one_arm_of_several_is_done_again(self):
        made = self.tiny("--steps", "3", "--output", "old.json")
        self.assertEqual(made.returncode, 0, made.err)
        report = self.report("old.json")
        one = report["arms"][0]
        report["arms"] = [{**one, "name": "1x1x1"}, {**one, "name": "1x1x2"}]
        self.write("sweep.json", json.dumps(report))
        self.assert_refused(self.call("rerun", "sweep.json"), 2, "2 arms", "FILE#ARM",
                            "1x1x1, 1x1x2")
        self.assert_refused(self.call("rerun", "sweep.json#1x1x3"), 2, "1x1x3", "1x1x1, 1x1x2")
        process = self.call("rerun", "sweep.json#1x1x2", "--runs", "1")
        self.assert_verdict(process, 0, "1x1x2", "1|1")
        self.assertTrue(os.path.exists(self.path("rerun-1-of-sweep.report.json")))

    def test_a_report_on_standard_input_is_not_repeated(self):
        made = self.made("old.json", 1000, 0)
        for command in (["rerun", "-"], ["gate", "old.json", "-", "--rerun", "1"]):
            with open(made, encoding="utf-8") as report:
                self.assert_refused(self.call(*command, stdin=report), 2,
                                    "a report to be repeated must be a file")

    def test_emulated_vms_that_are_not_reported_are_refused(self):
        def emulate(report, _):
            report["kind"] = report["arms"][0]["kind"] = "emulated"
        emulated = self.made("emulated.json", 1000, 0, emulate)
        self.assert_refused(self.call("rerun", emulated), 2, "emulated", "nearmetal sweep")

    def test_a_report_names_no_program_that_is_started(self):
        """Not even one that has the hash which the report says."""
        for program in ("/bin/sh", self.path("evil"), "evil"):
            self.write_program("evil", "#!/bin/sh\ntouch owned\n")
            self.write("run", "touch owned\n")
            with open(os.path.join(self.folder, program), "rb") as file:
                digest = hashlib.sha256(file.read()).hexdigest()

            def name_it(report, _, program=program, digest=digest):
                report["arms"][0]["executable"] = {"path": program, "sha256": digest,
                                                   "modules_sha256": {}}
            bad = self.made("bad.json", 1000, 0, name_it)
            for command in (["rerun", bad], ["gate", bad, bad, "--rerun", "1"]):
                self.assert_refused(self.call(*command), 2, bad, f"'{program}'", "--program FILE")
        self.assertFalse(os.path.exists(self.path("owned")))

    def test_a_program_is_not_named_for_a_report_without_a_hash(self):
        made = self.made("old.json", 1000, 0)
        self.assert_refused(self.call("rerun", made, "--program", cli.EXECUTABLE), 2, made,
                            "no build is recorded", "--program")

    def test_recorded_text_is_not_executed(self):
        def hostile(report, _):
            report["invocation"]["argv"] = ["sh", "-c", "touch owned"]
            config = report["invocation"]["config"]
            config["model"]["value"] = "x;touch owned"
            config["output"]["value"] = self.path("owned")
        bad = self.made("bad.json", 1000, 0, hostile)
        self.assert_refused(self.call("rerun", bad), 2, bad, "'x;touch owned'")
        self.assertFalse(pathlib.Path(self.path("owned")).exists())


if __name__ == "__main__":
    cli.main()
