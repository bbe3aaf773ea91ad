"""Surveys of real processes: four ranks on one CPU, with --slow eight, of which one is slowed."""

import json
import os
import shutil
import signal
import sys
import unittest

import jsonschema

import cli

RANKS = 8 if "--slow" in sys.argv and (sys.argv.remove("--slow") or True) else 4
# All ranks share a CPU, so that the scheduler gives one of lower priority less of it.
SLOW = """#!/bin/sh
[ "$OMPI_COMM_WORLD_RANK" = 2 ] && slower="nice -n 6"
exec taskset -c {cpu} $slower {program} "$@"
"""
WORK = [*cli.TINY_WORK, "--duration", "0.5"]


@unittest.skipUnless(shutil.which("mpirun"), "there is no mpirun")
class Survey(cli.CliTest):
    def fleet(self):
        cpu = min(os.sched_getaffinity(0))
        self.write_program("program", SLOW.format(cpu=cpu, program=cli.EXECUTABLE))
        return self.write("fleet.json", json.dumps({
            "hosts": [{"name": "localhost", "gpus": 0}],
            "launcher": {"program": self.path("program")},
            "layouts": [{"name": "fleet", "shape": f"1x1x{RANKS}"}]}))

    def survey(self, *arguments):
        process = self.start("survey", *arguments, *WORK)
        process.out, process.err = process.communicate(timeout=cli.limit(120))
        return process

    def validated(self, name):
        report = self.report(name)
        schema = json.loads(self.call("schema", "report").out)
        jsonschema.Draft202012Validator(schema).validate(report)
        self.assertEqual(self.call("validate", name).returncode, 0)
        return report

    def test_the_slow_rank_is_named(self):
        process = self.survey(self.fleet(), "--repeats", "1", "--output", "s.json", "--html", "s.html")
        self.assertEqual(process.returncode, 1, process.out + process.err)
        self.assertRegex(process.out, r"(?m)^rank 2 of \S+ is slow: -\d+.*against the others")
        survey = self.validated("s.json")["survey"]
        suspect, = survey["suspects"]
        self.assertEqual((suspect["part"], suspect["units"][0]["rank"], suspect["confirmed"]),
                         ("device", 2, True))
        self.assertLess(suspect["upper"], 0)
        arms = {arm["name"]: len(arm["runs"]) for arm in self.report("s.json")["arms"]}
        self.assertEqual(arms, {"each": 2, "all": 1}, "only who is suspected runs again")
        with open(self.path("s.html"), encoding="utf-8") as page:
            self.assertIn("rank 2", page.read())
        self.assertEqual(survey["faults"], [])
        # It is known to a later one, and no reason to fail.
        process = self.call("gate", "s.json", "s.json")
        self.assertEqual(process.returncode, 0, process.err)
        self.assertIn("PASS", process.out)
        self.assertRegex(process.out, r"(?m)^rank 2 of \S+ is slow, as before: -")
        report = self.report("s.json")
        report["survey"]["suspects"] = []
        self.write("before.json", json.dumps(report))
        process = self.call("gate", "before.json", "s.json")
        self.assertEqual(process.returncode, 1, process.err)
        self.assertIn("rank 2", process.out)

    def test_too_few_are_not_judged_and_a_stopped_survey_goes_on(self):
        two = ["1x1x2", "--hosts", "localhost:0", "--repeats", "1", "--output", "s.json"]
        process = self.start("survey", *two, *WORK)

        def one_is_through():
            if not os.path.exists(self.path("s.jsonl")):
                return False
            with open(self.path("s.jsonl"), encoding="utf-8") as journal:
                return journal.read().count("\n") > 1

        self.assertTrue(cli.wait_until(one_is_through, 60))
        process.send_signal(signal.SIGINT)
        err = process.communicate(timeout=cli.limit(60))[1]
        self.assertEqual(process.returncode, 130, err)
        self.assertIn("nearmetal survey 1x1x2", err.splitlines()[-1])
        process = self.survey(*two, "--resume", "s.jsonl", "--force")
        self.assertEqual(process.returncode, 3, process.out + process.err)
        self.assertIn("not judged, as fewer than 4 are of a kind: 2 ", process.out)
        self.assertEqual([len(arm["runs"]) for arm in self.validated("s.json")["arms"]], [1, 1])

    def test_a_host_that_does_not_answer_is_a_finding(self):
        process = self.survey("2x1x2", "--hosts", "localhost:0,nowhere.invalid:0", "--repeats", "1",
                              "--output", "s.json")
        self.assertEqual(process.returncode, 1, process.out + process.err)
        self.assertIn("hosts that do not answer: nowhere.invalid", process.out)
        self.assertEqual(self.validated("s.json")["survey"]["silent_hosts"], ["nowhere.invalid"])

    def test_what_cannot_be_surveyed_is_refused(self):
        self.assert_refused(self.survey("1x1x1", "--hosts", "localhost:0"), 2, "here is one")
        self.assert_refused(self.survey("1x1x2", "1x1x4", "--hosts", "localhost:0"), 2, "one layout")
        self.assert_refused(self.survey("1x2x2", "--hosts", "localhost:0"), 2, "emulated VMs")
        self.assert_refused(self.survey("1x1x2", "--hosts", "localhost:0", "--pipeline", "2"), 2,
                            "--pipeline")
        self.assert_refused(self.survey("1x1x2", "--hosts", "localhost:0", "--update", "allreduce"),
                            2, "leave out --update")
        self.write("kept.html", "mine")
        self.assert_refused(self.survey("1x1x2", "--hosts", "localhost:0", "--html", "kept.html"), 9,
                            "kept.html")
        process = self.survey("2x1x1", "--hosts", "nowhere.invalid:0,nor.invalid:0")
        self.assertEqual(process.returncode, 6, process.err)
        self.assertIn("no host answers", process.err)
        report = os.path.join(os.path.dirname(__file__), "..", "data", "report-1.0.json")
        self.assert_refused(self.survey("1x1x2", "--hosts", "localhost:0", "--baseline", report), 5,
                            "no report of a survey")


if __name__ == "__main__":
    cli.main()
