"""run --repeats: fresh processes, one report."""

import json
import os
import shlex
import signal

import cli


class Repeats(cli.CliTest):
    def test_each_run_is_a_process_of_its_own(self):
        process = self.tiny("--steps", "3", "--repeats", "3", "--output", "three.json")
        self.assertEqual(process.returncode, 0, process.err)
        self.assertRegex(process.out, r"run +1 +3 ")
        self.assertRegex(process.err, r"(?m)^run 3 of 3: throughput [0-9.]+ images/s$")
        report = self.report("three.json")
        [arm] = report["arms"]
        self.assertEqual((arm["name"], len(arm["runs"])), ("run", 3))
        starts = {run["ranks"][0]["window_start_unix_seconds"] for run in arm["runs"]}
        self.assertEqual(len(starts), 3)
        self.assertEqual(os.listdir(self.folder), ["three.json"])
        alone = self.tiny("--steps", "3", "--output", "one.json")
        self.assertEqual(alone.returncode, 0, alone.err)
        self.assertEqual(self.report("one.json")["invocation"]["config_sha256"],
                         report["invocation"]["config_sha256"])
        process = self.call("compare", "one.json", "three.json")
        self.assertIn("1|3", process.out)

    def test_the_table_has_the_latency_of_inference(self):
        process = self.tiny("--steps", "3", "--inference", "--repeats", "2", "--output", "two.json")
        self.assertEqual(process.returncode, 0, process.err)
        self.assertRegex(process.out, r"latency p50, ms +p99, ms")
        rank = self.report("two.json")["arms"][0]["runs"][0]["ranks"][0]
        self.assertGreater(rank["latency"]["median_seconds"], 0)

    def test_the_report_alone_goes_to_standard_output(self):
        process = self.tiny("--steps", "3", "--repeats", "2", "--json", "--quiet")
        self.assertEqual((process.returncode, process.err), (0, ""))
        self.assertEqual(len(json.loads(process.out)["arms"][0]["runs"]), 2)
        self.assertEqual(os.listdir(self.folder), [])

    def test_neither_mpirun_nor_a_report_is_needed(self):
        process = self.tiny("--steps", "3", "--repeats", "2", "--no-report",
                            env={**cli.clean_environment(), "PATH": "/nonexistent"})
        self.assertEqual(process.returncode, 0, process.err)
        self.assertRegex(process.out, r"run +1 +2 ")
        self.assertEqual(os.listdir(self.folder), [])

    def interrupted_at(self, start):
        """What is said after a Ctrl-C as soon as a line on stderr begins so."""
        process = self.start(*cli.TINY, "--steps", "400", "--repeats", "2", "--output", "r.json")
        for line in process.stderr:
            if line.startswith(start):
                break
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=cli.limit(60))
        self.assertEqual((process.returncode, self.report("r.json")["status"]), (130, "partial"),
                         out + err)
        return err

    def test_an_interrupt_keeps_what_was_measured_and_resume_goes_on(self):
        err = self.interrupted_at("run 2 of 2")
        again = self.call(*shlex.split(err.partition("go on with: ")[2])[1:])
        self.assertEqual(again.returncode, 0, again.err)
        self.assertEqual([run["status"] for run in self.report("r.json")["arms"][0]["runs"]],
                         ["complete"] * 2)
        self.assertEqual(os.listdir(self.folder), ["r.json"])

    def test_a_stop_before_the_first_word_of_a_process_is_no_failure(self):
        self.interrupted_at("run 1 of 2")

    def test_what_no_process_could_repeat_is_refused(self):
        for arguments, code, why in (
                (["--repeats", "2", "--ranks", "2"], 2, "nearmetal sweep"),
                (["--resume", "r.jsonl"], 2, "--repeats"),
                (["--keep-failed"], 2, "--repeats"),
                (["--allow-other-build"], 2, "--repeats"),
                (["--repeats", "0"], 2, "--repeats"),
                (["--repeats", "2", "--quiet", "--expect-gpu", "H200"], 2, "CPUs")):
            self.assert_refused(self.tiny("--steps", "3", *arguments), code, why)
        self.assertEqual(os.listdir(self.folder), [])

    def test_what_a_run_must_find_is_asked_of_each(self):
        for option, value in (("--expect-uuid", "GPU-1"), ("--expect-link", "10G,240.1.2.0/24")):
            process = self.tiny("--steps", "3", "--repeats", "1", option, value,
                                "--output", "r.json", "--force")
            self.assertEqual(process.returncode, 10, process.err)
            self.assertIn(f"{option} {value}", process.err)


if __name__ == "__main__":
    cli.main()
