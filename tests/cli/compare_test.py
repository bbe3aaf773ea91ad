"""compare, gate, baseline and rerun, on reports made from one of a released version."""

import copy
import glob
import json
import os
import pathlib
import random
import xml.etree.ElementTree as ElementTree

import jsonschema

import cli
import made_up

SOURCE = pathlib.Path(__file__).parent.parent / "data" / "report-1.0.json"


class CompareTest(cli.CliTest):
    def setUp(self):
        super().setUp()
        self.random = random.Random(7)
        self.source = json.loads(SOURCE.read_text(encoding="utf-8"))

    def made(self, name, throughput, minute, change=None):
        report = copy.deepcopy(self.source)
        run = report["arms"][0]["runs"][0]
        run["warnings"] = []
        run["throughput_images_per_second"] = throughput
        run["started_at"] = f"2026-11-21T{minute // 60:02}:{minute % 60:02}:00Z"
        if change:
            change(report, run)
        return self.write(name, json.dumps(made_up.settled(report)))

    def runs(self, name, level, count=6, minute=0, change=None):
        return [self.made(f"{name}-{i}.json", level * (1 + self.random.gauss(0, 0.004)),
                          minute + i, change) for i in range(count)]

    def assert_verdict(self, process, code, *fragments):
        self.assertEqual(process.returncode, code, process.out + process.err)
        last = process.out.splitlines()[-1]
        self.assertTrue(last.startswith("verdict: "), last)
        self.assertTrue(last.endswith(f"(exit {code})"), last)
        for fragment in fragments:
            self.assertIn(fragment, process.out)

    def json_of(self, *arguments):
        process = self.call(*arguments, "--json")
        document = json.loads(process.out, parse_constant=self.fail)
        schema = json.loads(self.call("schema", "comparison").out)
        jsonschema.Draft202012Validator.check_schema(schema)
        jsonschema.Draft202012Validator(schema).validate(document)
        self.assertEqual(document["exit_code"], process.returncode)
        return document


class Compare(CompareTest):
    def test_metrics_have_short_names(self):
        base, new = self.runs("base", 1000, count=2), self.runs("new", 1000, count=2, minute=60)
        sides = ["compare", "--base", *base, "--new", *new]
        self.assertEqual(self.json_of(*sides, "--metric", "throughput"), self.json_of(*sides))
        rows = self.json_of(*sides, "--metric", "all")["rows"]
        metrics = {row["metric"] for row in rows}
        self.assertLessEqual({"throughput_images_per_second", "p99_step_seconds",
                              "prepare_seconds"}, metrics)
        self.assertNotIn("throughput_sequences_per_second", metrics, "there are none")

    def test_rows_come_by_layout_where_asked_for(self):
        for name, minute, speed in (("old.json", 0, 1), ("new.json", 20, 0.9)):
            report = made_up.sweep(minute, False, speed)
            report["arms"].insert(0, {**copy.deepcopy(report["arms"][2]), "name": "1x1x10"})
            report["arms"].reverse()
            self.write(name, json.dumps(made_up.settled(report)))
        rows = self.json_of("compare", "old.json", "new.json", "--sort", "layout")["rows"]
        self.assertEqual([row["arm"] for row in rows], ["1x1x1", "1x1x2", "1x1x4", "1x1x10"])

    def test_verdicts_and_exit_codes(self):
        base = self.runs("base", 1000)
        same = self.runs("same", 1000, minute=60)
        slow = self.runs("slow", 950, minute=120)
        self.assert_verdict(self.call("compare", "--base", *base, "--new", *same), 0, "EQUIVALENT")
        self.assert_verdict(self.call("compare", "--base", *base, "--new", *slow), 0, "SLOWER")
        self.assert_verdict(self.call("compare", base[0], slow[0]), 0, "INCONCLUSIVE")

    def test_json_and_markdown(self):
        base = self.runs("base", 1000)
        slow = self.runs("slow", 950, minute=120)
        sides = ["compare", "--base", *base, "--new", *slow]
        document = self.json_of(*sides)
        row = document["rows"][0]
        self.assertEqual(row["verdict"], "SLOWER")
        self.assertLess(row["difference_interval"]["upper"], -0.02)
        self.assertIsNone(document["gate"])
        self.json_of("compare", base[0], slow[0])
        self.json_of(*sides, "--metric", "median_step_seconds", "set_up_seconds")
        markdown = self.call(*sides, "--markdown").out
        self.assertIn("| SLOWER", markdown)

    def test_other_work_is_exit_4_and_can_be_allowed(self):
        base = self.runs("base", 1000)

        def change(report, _):
            report["invocation"]["config"]["batch"]["value"] = 16
            report["environments"][0]["libraries"]["onednn"] = "3.0"
        other = self.runs("other", 1000, minute=60, change=change)
        sides = ["compare", "--base", *base, "--new", *other]
        process = self.call(*sides)
        self.assert_verdict(process, 4, "NOT-COMPARABLE", "batch", "libraries.onednn")
        self.assertLess(process.out.index("batch"), process.out.index("libraries.onednn"))
        self.assertEqual(len(self.json_of(*sides)["key_differences"]), 2)
        self.assert_verdict(self.call(*sides, "--allow-differ", "batch", "libraries"), 0,
                            "EQUIVALENT")
        process = self.call("gate", *other, *base, "--allow-differ", "kind")
        self.assert_refused(process, 2, "--allow-differ kind is for compare")
        process = self.call(*sides, "--allow-differ", "bacth")
        self.assert_refused(process, 2, "'bacth'", "did you mean 'batch'?")

    def test_an_emulated_split_beside_the_whole_host_is_labelled_in_every_form(self):
        def emulate(report, _):
            report["arms"][0]["kind"] = "emulated"
        sides = ["compare", "--base", *self.runs("base", 1000),
                 "--new", *self.runs("split", 900, minute=60, change=emulate)]
        self.assert_verdict(self.call(*sides), 4, "NOT-COMPARABLE", "measured", "emulated")
        allowed = [*sides, "--allow-differ", "kind"]
        label = "the base is measured, the new set emulated"
        self.assert_verdict(self.call(*allowed), 0, "SLOWER", label)
        self.assertIn(label, self.call(*allowed, "--markdown").out)
        row = self.json_of(*allowed)["rows"][0]
        self.assertEqual(row["notes"][0]["code"], "kinds_differ")
        self.call(*allowed, "--html", "page.html", "--no-charts")
        self.assertIn(label, pathlib.Path(self.path("page.html")).read_text(encoding="utf-8"))

    def test_no_row_in_common_is_exit_4(self):
        def rename(report, _):
            report["arms"] = [{**report["arms"][0], "name": name} for name in ("1x4", "1x8")]
        base = self.runs("base", 1000)
        process = self.call("compare", "--base", *base, "--new",
                            *self.runs("other", 1000, minute=60, change=rename))
        self.assert_verdict(process, 4, "only in the base", "only in the new set")

    def test_the_vm_form_lists_what_differs(self):
        def bare(report, _):
            report["environments"][0]["hypervisor_cpu_flag"] = False

        def vm(report, _):
            report["environments"][0]["cpu_model"] = "Virtual CPU"
            report["environments"][0]["memory_bytes"] = 1 << 30
        arguments = ["compare", "--bare", *self.runs("bare", 1000, change=bare), "--vm",
                     *self.runs("vm", 990, minute=60, change=vm)]
        process = self.call(*arguments)
        self.assert_verdict(process, 0, "hypervisor_cpu_flag", "memory_bytes",
                            "Virtual CPU")
        self.assertNotIn("published: ", process.out)
        self.assertNotIn("given as bare metal", process.out)
        options = self.json_of(*arguments)["options"]
        self.assertEqual((options["form"], options["vm_form"]), ("vm", True))
        arguments[1], arguments[-7] = "--vm", "--bare"
        self.assert_verdict(self.call(*arguments), 0, "the side given as bare metal shows")

    def test_a_container_is_compared_with_bare_metal(self):
        self.source = json.loads(SOURCE.with_name("report-1.2.json").read_text(encoding="utf-8"))

        def in_container(name):
            def change(report, _):
                environment = report["environments"][0]
                environment["hypervisor_cpu_flag"] = False
                environment["virtualisation"].update(
                    machine="bare-metal", hypervisor="none", container=name)
            return change
        bare = self.runs("bare", 1000, change=in_container("none"))
        pod = self.runs("pod", 900, minute=60, change=in_container("kubernetes"))
        process = self.call("compare", "--bare", *bare, "--container", *pod, "--html", "pod.html")
        self.assert_verdict(process, 0, "% slower than bare metal [",
                            "virtualisation/container", "kubernetes", "bare metal, images/s",
                            "container, images/s")
        self.assertNotIn("given as", process.out)
        self.assertNotIn("published: ", process.out)
        page = pathlib.Path(self.path("pod.html")).read_text(encoding="utf-8")
        self.assertIn("nearmetal: a container against bare metal", page)
        options = self.json_of("compare", "--bare", *bare, "--container", *pod)["options"]
        self.assertEqual((options["form"], options["vm_form"]), ("container", False))
        process = self.call("compare", "--bare", *pod, "--container", *bare)
        self.assert_verdict(process, 0, "given as bare metal shows a container",
                            "given as a container shows no container")

    def test_a_vm_and_a_container_are_two_comparisons(self):
        one = self.made("one.json", 1000, 0)
        self.assert_refused(self.call("compare", "--bare", one, "--vm", one, "--container", one), 2,
                            "--vm and --container exclude each other", "a separate call")

    def test_what_cannot_be_read_is_exit_5(self):
        good = self.made("good.json", 1000, 0)
        bad = self.write("bad.json", "{")
        self.assert_refused(self.call("compare", good, bad), 5, "bad.json")
        self.assert_refused(self.call("gate", "no-such-baseline", good), 5, "no-such-baseline",
                            "neither a report, a folder nor a baseline; baselines/ holds none",
                            "baseline add")

        def fail(report, run):
            run["status"] = "failed"
        failed = self.made("failed.json", 1000, 5, fail)
        self.assert_verdict(self.call("compare", good, failed), 5, "INVALID")


class Gate(CompareTest):
    def test_a_baseline_is_kept_and_compared_with(self):
        process = self.call("baseline", "add", "main", *self.runs("base", 1000))
        self.assertEqual(process.returncode, 0, process.err)
        self.assertEqual(process.out.count("added baselines/main/"), 6)
        shown = self.call("baseline", "list")
        self.assertRegex(shown.out, r"(?m)^main +[0-9a-f]{12} +run +6 ")
        shown = self.call("baseline", "show", "main")
        self.assertRegex(shown.out, r"3 %: \d+\n")
        again = self.call("baseline", "add", "main", "base-0.json")
        self.assert_refused(again, 2, "already")
        self.assert_verdict(self.call("gate", "main", *self.runs("same", 1000, minute=60)), 0,
                            "pass", "(within one session); a drop of")
        slow = self.runs("slow", 950, minute=120)
        self.assert_verdict(self.call("gate", "main", *slow), 1, "fail")
        self.assertEqual(self.json_of("gate", "main", *slow)["gate"]["fail_on"], "regression")

    def test_policies_and_few_runs(self):
        base = self.folder + "/base"
        for path in self.runs("base", 1000):
            pathlib.Path(base).mkdir(exist_ok=True)
            pathlib.Path(path).rename(pathlib.Path(base) / pathlib.Path(path).name)
        near = [self.made(f"near-{i}.json", 970 + 4 * i, 60 + i) for i in range(6)]
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
        suite = ElementTree.parse(self.path("gate.xml")).getroot()
        self.assertEqual((suite.get("tests"), suite.get("failures")), ("1", "1"))
        self.assertRegex(suite.find("testcase/failure").get("message"),
                         r"^The new set is .* % slower than the base \[.*\]: SLOWER, worse by")
        page = pathlib.Path(self.path("gate.html")).read_text(encoding="utf-8")
        self.assertIn("verdict: fail: worse by more than 2 %: run (within one session) (exit 1)", page)
        os.remove(self.path("gate.xml"))
        kept = self.call(*arguments)
        self.assert_verdict(kept, 1, "fail")
        self.assertRegex(kept.err, r"^nearmetal: cannot write gate.html: .*--force.*\n$")
        self.assertTrue(os.path.exists(self.path("gate.xml")), "a page does not keep it back")
        self.assert_verdict(self.call(*arguments, "--force"), 1, "fail")

    def test_what_is_read_is_not_replaced(self):
        base, new = self.made("base.json", 1000, 0), self.made("new.json", 1000, 60)
        os.symlink("new.json", self.path("link.json"))
        with open(base, encoding="utf-8") as file:
            text = file.read()
        for command in (("report", base, "--output", "base.json"),
                        ("report", self.folder, "--output", "link.json"),
                        ("compare", base, new, "--html", "base.json"),
                        ("gate", base, new, "--junit", "link.json"),
                        ("run", "--device", "cpu", "--plans", new, "--output", "new.json"),
                        ("sweep", "base.json", "--output", "base.json"),
                        ("plan", "base.json", "--output", "base.json")):
            refused = self.call(*command, "--force")
            self.assertEqual(refused.returncode, 2, (command, refused.err))
        with open(base, encoding="utf-8") as file:
            self.assertEqual(file.read(), text)

    def test_what_cannot_be_written_is_exit_9_where_the_gate_passes(self):
        self.call("baseline", "add", "main", *self.runs("base", 1000, minute=0))
        process = self.call("gate", "main", *self.runs("new", 1000, minute=60), "--html",
                            "none/page.html", "--junit", "gate.xml")
        self.assertEqual(process.returncode, 9, process.err)
        self.assertRegex(process.out, r"\nverdict: pass.* \(exit 9\)\n$")
        self.assertTrue(os.path.exists(self.path("gate.xml")))

    def test_a_page_without_gnuplot_says_so(self):
        environment = {**cli.clean_environment(), "PATH": self.folder}
        base, new = self.runs("base", 1000, minute=0), self.runs("new", 1000, minute=60)
        process = self.call("compare", "--base", *base, "--new", *new, "--html", "page.html",
                            env=environment)
        self.assertEqual(process.returncode, 0, process.err)
        page = pathlib.Path(self.path("page.html")).read_text(encoding="utf-8")
        self.assertIn("charts are left out, as gnuplot is not here", page)

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
