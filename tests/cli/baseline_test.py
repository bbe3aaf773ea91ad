"""baseline: runs are added, listed, shown and removed, on reports made from a released version."""

import json
import os

import jsonschema

import cli
from comparing import CompareTest


class Baseline(CompareTest):
    def baseline(self, *arguments, code=0):
        process = self.call("baseline", *arguments)
        self.assertEqual(process.returncode, code, process.err)
        return process

    def series(self, *arguments):
        document = json.loads(self.baseline(*arguments, "--json").out)
        schema = json.loads(self.call("schema", "baselines").out)
        jsonschema.Draft202012Validator.check_schema(schema)
        jsonschema.Draft202012Validator(schema).validate(document)
        return document["series"]

    def test_what_is_there_can_be_skipped(self):
        first, second = self.runs("base", 1000, count=2)
        self.baseline("add", "main", first)
        process = self.baseline("add", "main", first, second, "--skip-existing")
        self.assertEqual(process.out.count("added "), 1)
        self.assertEqual(process.out.count("there already: "), 1)
        self.assert_refused(self.call("baseline", "add", "main", first), 2, "--skip-existing")

    def test_one_report_or_all_are_removed_and_nothing_else(self):
        first, second = self.runs("base", 1000, count=2)
        self.baseline("add", "main", first, second)
        self.assertEqual(self.baseline("remove", "main", first).out.count("removed "), 1)
        self.assertEqual(self.series("list")[0]["runs"], 1)
        self.assert_refused(self.call("baseline", "remove", "main", first), 2, "is not in")
        note = self.write("baselines/main/note.json", "{}")
        process = self.baseline("remove", "main", "--all")
        self.assertIn("note.json is no copy of a report and stays", process.err)
        self.assertEqual(os.listdir(self.path("baselines/main")), ["note.json"])
        os.remove(note)
        self.baseline("remove", "main", "--all")
        self.assertEqual(os.listdir(self.path("baselines")), [])
        self.assertTrue(os.path.exists(second), "reports themselves stay")
        self.assert_refused(self.call("baseline", "remove", "main", "--all"), 5, "no baseline main")
        self.assert_refused(self.call("baseline", "remove", "../baselines", "--all"), 2, "is no name")

    def test_a_baseline_tests_itself(self):
        self.baseline("add", "main", *self.runs("base", 1000, count=6))
        self.assertRegex(self.baseline("show", "main", "--self-test").out,
                         r"self-test: 0 of 1000 comparisons of some runs with the rest called it "
                         r"SLOWER; 80 % of\s+them would find a drop of \d")
        self.assertEqual(self.series("show", "main", "--self-test")[0]["self_test"]["slower"], 0)
        self.assertIsNone(self.series("show", "main")[0]["self_test"])
        work = "resnet18 training, fp32, batch 8 on AMD EPYC"
        self.assertEqual(self.series("show", "main")[0]["work"], work)
        self.assertIn(work + ", fingerprint ", self.baseline("show", "main").out.replace("\n    ", " "))
        self.baseline("add", "few", *self.runs("few", 1000, count=2))
        self.assertIn("no self-test: it takes 3 sessions, or 5 runs of one",
                      self.baseline("show", "few", "--self-test").out)

    def test_reports_that_do_not_tell_their_cpu_are_of_the_same_machine(self):
        base = self.runs("base", 1000, count=6)
        for name in base[3:]:
            self.tell_cpu(name, stepping=1)
        self.baseline("add", "main", *base)
        new = self.runs("new", 1000, count=3, minute=60)
        for name in new:
            self.tell_cpu(name, stepping=1)
        self.assertIn("6|3", self.call("gate", "main", *new).out)
        self.tell_cpu(new[0], stepping=2)
        self.assert_verdict(self.call("gate", "main", *new), 4, "cpu_id")

    def tell_cpu(self, name, stepping):
        with open(self.path(name), encoding="utf-8") as file:
            report = json.load(file)
        report["environments"][0]["processor"] = {
            "vendor": "GenuineIntel", "family": 6, "model": 143, "stepping": stepping,
            "microcode": "0x1", "cache": "1 KB", "sockets": 1, "cores": 2, "numa_nodes": 1,
            "governor": "performance", "largest_hertz": 1, "unknown": {}}
        self.write(name, json.dumps(report))

    def test_a_whole_baseline_is_removed_only_when_asked(self):
        """As a pattern that no file matches may leave no file on the command line."""
        reports = self.runs("base", 1000, count=2)
        self.baseline("add", "main", *reports)
        self.assert_refused(self.call("baseline", "remove", "main"), 2, "--all")
        self.assert_refused(self.call("baseline", "remove", "main", reports[0], "--all"), 2, "--all")
        self.assertEqual(self.series("list")[0]["runs"], 2)

    def test_scripts_have_the_figures(self):
        self.assertEqual(self.series("list"), [])
        self.baseline("add", "main", *self.runs("base", 1000))
        self.baseline("add", "one", *self.runs("other", 500, count=1, minute=60))
        main, one = self.series("list")
        self.assertEqual((main["baseline"], main["runs"], one["runs"]), ("main", 6, 1))
        self.assertLess(main["lower"], main["throughput_images_per_second"])
        self.assertIn("fewer than 2 runs", one["unknown"]["lower"])
        drops = {one["drop"]: one["runs"] for one in self.series("show", "main")[0]["needed_runs"]}
        self.assertEqual(list(drops), [0.025, 0.03, 0.04])
        self.assertGreater(drops[0.025], drops[0.04])
        self.assertEqual((main["sessions"], main["needed_runs"][0]["sessions"]), (1, None))

    def test_its_name_is_not_that_of_a_file(self):
        self.baseline("add", "main", *self.runs("base", 1000))
        [new] = self.runs("main", 500, count=1, minute=60)
        os.rename(new, self.path("main"))
        self.assertEqual(self.series("show", "main")[0]["runs"], 6)
        self.assertEqual(self.series("show", "./main")[0]["runs"], 1)
        self.assertIn("6|1", self.call("gate", "main", "./main").out)

    def test_a_report_may_come_through_standard_input(self):
        with open(self.runs("base", 1000, count=1)[0], encoding="utf-8") as report:
            self.assertEqual(self.call("baseline", "add", "main", "-", stdin=report).returncode, 0)
        self.assertEqual(self.series("list")[0]["runs"], 1)


if __name__ == "__main__":
    cli.main()
