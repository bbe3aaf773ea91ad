"""gate and its baselines, on reports made from one of a released version."""

import copy
import glob
import json
import os
import pathlib
import xml.etree.ElementTree as ElementTree

import cli
import comparing
import consumers
import made_up


class Gate(comparing.CompareTest):
    def test_a_baseline_is_kept_and_compared_with(self):
        process = self.call("baseline", "add", "main", *self.runs("base", 1000))
        self.assertEqual(process.returncode, 0, process.err)
        self.assertEqual(process.out.count("added baselines/main/"), 6)
        shown = self.call("baseline", "list")
        self.assertRegex(shown.out, r"(?m)^main +[0-9a-f]{12} +run +6 ")
        shown = self.call("baseline", "show", "main")
        self.assertRegex(shown.out, r"3 %: \d+ \(about [^)]+\)\n")
        self.assert_refused(self.call("baseline", "add", "main", "base-0.json"), 2, "already")
        self.assert_verdict(self.call("gate", "main", *self.runs("same", 1000, minute=60)), 0,
                            "pass", "(within one session); a drop of")
        slow = self.runs("slow", 950, minute=120)
        self.assert_verdict(self.call("gate", "main", *slow), 1, "fail")
        self.assertEqual(self.json_of("gate", "main", *slow)["gate"]["fail_on"], "regression")

    def test_each_machine_is_gated_against_its_own(self):
        def on_b(report, _run):
            report["environments"][0].update(host_name="b", boot_id="2" * 36, machine_id="b" * 64)
        self.call("baseline", "add", "main", *self.runs("base", 1000))
        near = [self.made(f"near-{i}.json", 1000 + i, 60 + i, on_b) for i in range(3)]
        self.assert_verdict(self.call("gate", "main", *near, "--per-machine"), 4, "run on b", "only in")
        self.call("baseline", "add", "main", *near)
        slow = [self.made(f"slow-{i}.json", 900 + i, 90 + i, on_b) for i in range(3)]
        self.assert_verdict(self.call("gate", "main", *slow, "--per-machine"), 1, "run on b")
        self.assert_refused(self.call("gate", "main", *slow, "--per-machine", "--rerun", "2"), 2,
                            "--per-machine")

    def test_policies_and_few_runs(self):
        base = self.folder + "/base"
        for path in self.runs("base", 1000):
            pathlib.Path(base).mkdir(exist_ok=True)
            pathlib.Path(path).rename(pathlib.Path(base) / pathlib.Path(path).name)
        near = [self.made(f"near-{i}.json", 970 + 4 * step, 60 + i)
                for i, step in enumerate((3, 0, 5, 1, 4, 2))]
        self.assert_verdict(self.call("gate", base, *near), 0, "inconclusive")
        self.assert_verdict(self.call("gate", base, *near, "--fail-on", "not-equivalent"), 3)
        self.assert_verdict(self.call("gate", base, *near, "--margin", "10%", "--fail-on", "any"), 0)
        self.assert_verdict(self.call("gate", base, near[0]), 3, "too few runs")
        self.assert_verdict(self.call("gate", base, *near[:2], "--min-runs", "2"), 0)

        def rename(report, _):
            report["arms"].append(copy.deepcopy(report["arms"][0]))
            report["arms"][1]["name"] = "1x2"
        more = self.runs("more", 1000, minute=120, change=rename)
        self.assert_verdict(self.call("gate", base, *more), 4, "not comparable", "1x2")

    def test_refuses_a_bad_date_share_and_margin(self):
        self.call("baseline", "add", "main", *self.runs("base", 1000, minute=0))
        new = self.runs("new", 1000, minute=60)
        for option, says in (("--since=2026-13-01", "a date such as"), ("--since=today", "a date"),
                             ("--since=2030-01-01", "no run of"), ("--max-detectable=0", "share"),
                             ("--margin=25%", "up to 0.2")):
            self.assert_refused(self.call("gate", "main", *new, option), 2, says)

    def test_a_foreign_file_in_a_folder_is_left_out(self):
        os.mkdir(self.path("base"))
        self.runs("base/run", 1000)
        self.write("base/package.json", '{"name": "other"}')
        new = self.runs("new", 1000, minute=60)
        process = self.call("gate", "base", *new)
        self.assert_verdict(process, 0, "pass")
        self.assertEqual(process.err, "nearmetal: note: base/package.json is no report and is left out\n")
        self.assertEqual(self.call("report", "base").returncode, 0)
        self.assert_refused(self.call("report", "base/package.json"), 5, "package.json")
        self.write("base/damaged.json", '{"schema": "nearmetal/report", "schema_')
        self.assert_refused(self.call("gate", "base", *new), 5, "damaged.json")
        os.mkdir(self.path("other"))
        self.write("other/package.json", '{"name": "other"}')
        self.assert_refused(self.call("report", "other"), 5, "there is no other")

    def test_a_blind_gate_is_inconclusive(self):
        base, new = self.runs("a", 1000, minute=100), self.runs("b", 1000, minute=200)
        self.call("baseline", "add", "main", *base)
        self.assert_verdict(self.call("gate", "main", *new, "--max-detectable", "10%"), 0, "pass")
        blind = self.call("gate", "main", *new, "--max-detectable", "2.01%")
        self.assert_verdict(blind, 3, "inconclusive: more runs are needed", "a drop of")

    def test_files_beside_what_is_printed(self):
        base, slow = self.runs("base", 1000), self.runs("slow", 950, minute=60)
        pathlib.Path(self.path("base")).mkdir()
        for path in base:
            pathlib.Path(path).rename(self.path("base/" + pathlib.Path(path).name))
        arguments = ["gate", self.path("base"), *slow, "--junit", "gate.xml", "--html", "gate.html",
                     "--no-charts"]
        self.assert_verdict(self.call(*arguments), 1, "fail")
        xml = pathlib.Path(self.path("gate.xml")).read_text(encoding="utf-8")
        consumers.assert_junit(self, xml)
        suite = ElementTree.fromstring(xml)
        self.assertEqual((suite.get("tests"), suite.get("failures")), ("1", "1"))
        self.assertEqual(suite.get("timestamp"), "2026-11-21T01:05:00", "that of the latest new run")
        self.assertIn("run / throughput_images_per_second / difference",
                      [given.get("name") for given in suite.iter("property")])
        self.assertRegex(suite.find("testcase/failure").get("message"),
                         r"^The new set is slower than the base, -.* % \[-.*, -.*\]: SLOWER, worse by")
        page = pathlib.Path(self.path("gate.html")).read_text(encoding="utf-8")
        self.assertIn("verdict: fail: worse by more than 2 %: run (within one session) (exit 1)", page)
        os.remove(self.path("gate.xml"))
        kept = self.call(*arguments)
        self.assert_verdict(kept, 1, "fail")
        self.assertRegex(kept.err, r"^nearmetal: cannot write gate.html: .*--force.*\n$")
        self.assertTrue(os.path.exists(self.path("gate.xml")), "a page does not keep it back")
        self.assert_verdict(self.call(*arguments, "--force"), 1, "fail")

    def test_what_cannot_be_written_is_exit_9_where_the_gate_passes(self):
        self.call("baseline", "add", "main", *self.runs("base", 1000, minute=0))
        process = self.call("gate", "main", *self.runs("new", 1000, minute=60), "--html",
                            "none/page.html", "--junit", "gate.xml")
        self.assertEqual(process.returncode, 9, process.err)
        self.assertRegex(process.out, r"\nverdict: pass.* \(exit 9\)\n$")
        self.assertTrue(os.path.exists(self.path("gate.xml")))

    def test_only_one_arm_is_repeated(self):
        sweep = self.write("sweep.json", json.dumps(made_up.sweep(0, False, 1)))
        self.assert_refused(self.call("rerun", sweep), 2, "sweep.json", "3 arms")
        self.assert_refused(self.call("gate", sweep, sweep, "--rerun", "2"), 2, "3 arms")

    def test_it_runs_again_while_inconclusive(self):
        made = self.tiny("--steps", "3", "--output", "new.json")
        self.assertEqual(made.returncode, 0, made.err)
        self.source = self.report("new.json")
        os.mkdir(self.path("base"))
        self.runs("base/run", self.source["arms"][0]["runs"][0]["throughput_images_per_second"])
        process = self.call("gate", "base", "new.json", "--rerun", "1")
        self.assert_verdict(process, 3, "sequential: 1 run", "6 base runs and 2 new runs")
        self.assertTrue(pathlib.Path(self.path("rerun-1-of-new.report.json")).exists())
        self.assertEqual(glob.glob(self.path("new*.json")), [self.path("new.json")])

    def test_runs_that_cannot_help_are_not_taken(self):
        lone = self.made("lone.json", 1000, 0)
        process = self.call("gate", lone, *self.runs("new", 1000, minute=60), "--rerun", "2")
        self.assert_verdict(process, 3, "sequential: 0 runs", "1 base run and 6 new runs")


if __name__ == "__main__":
    cli.main()
