"""reference, and --reference of compare, gate and report: a machine among others of its kind, on
reports made from one of a released version."""

import json
import os
import re
import statistics

import cli
import comparing

SOURCE = comparing.SOURCE.with_name("report-1.2.json")  # of a GPU, and monitored


def unwrapped(text):
    return " ".join(text.split())


def machine(number, day=21, **facts):
    """A change that makes a report one of another machine and day."""
    def change(report, run):
        environment = report["environments"][0]
        environment["boot_id"] = f"00000000-0000-0000-0000-{number:06}{day:06}"
        environment["host_name"] = f"secret{number}"
        for gpu in environment["gpus"]:
            gpu["uuid"] = gpu["uuid"][:-6] + f"{number:06}"
        run["started_at"] = run["started_at"].replace("2026-11-21", f"2026-11-{day}")
        for rank in run["ranks"]:
            for series in rank["monitoring"]["series"]:
                if series["name"] in facts:
                    value = facts[series["name"]]
                    series.update(minimum=value, mean=value, maximum=value,
                                  values=[value] * len(series["values"]))
    return change


LEVELS = (1000, 1004, 996, 1008, 992, 1001)


class Reference(comparing.CompareTest):
    def setUp(self):
        super().setUp()
        self.source = json.loads(SOURCE.read_text(encoding="utf-8"))

    def found(self, text, pattern):
        self.assertRegex(text, pattern)
        return re.search(pattern, text)

    def fleet(self, levels=LEVELS, name="fleet"):
        """Each machine on two days; returns the reports of each."""
        made = [[report for day in (21, 24)
                 for report in self.runs(f"{name}{number}-{day}", level, 2,
                                         change=machine(number, day))]
                for number, level in enumerate(levels)]
        process = self.call("reference", "add", name, *sum(made, []))
        self.assertEqual(process.returncode, 0, process.err)
        self.assertIn(f"{name}: added {4 * len(levels)} runs", process.out)
        return made

    def new(self, level, number=90, count=4, **facts):
        return self.runs(f"new{number}", level, count, minute=60, change=machine(number, **facts))

    def test_a_machine_like_the_others_is_within_what_they_show(self):
        self.fleet()
        process = self.call("compare", *self.new(1003), "--reference")
        self.assert_verdict(process, 0, "1 WITHIN")
        self.assertRegex(unwrapped(process.out),
                         r"This machine is within what 6 machines of fleet showed on 2 days, "
                         r"[-+][\d.]+ % \[-[\d.]+, \+[\d.]+\] from their mean: WITHIN")
        self.assertNotIn("EQUIVALENT", process.out)
        self.assert_verdict(self.call("gate", *self.new(1003), "--reference", "fleet"), 0, "pass: ")

    def test_a_slow_machine_is_beyond_them_and_its_clock_is_named(self):
        self.fleet()
        slow = self.new(940, sm_clock_hertz=1.2e9)
        process = self.call("compare", *slow, "--reference", "fleet")
        self.assert_verdict(process, 0, "1 SLOWER")
        text = unwrapped(process.out)
        found = self.found(text, r"This machine is slower than 95 % of 6 machines of fleet by "
                                 r"([\d.]+) % or more, -([\d.]+) % \[-[\d.]+, -([\d.]+)\]")
        self.assertEqual(round(float(found[1]), 1), round(float(found[3]), 1))
        self.assertIn("a likely cause, by the monitors: SM clock 1.20 GHz instead of", text)
        self.assert_verdict(self.call("gate", *slow, "--reference", "fleet"), 1,
                            "fail: worse than 95 % of machines: run")
        self.assertNotIn("--attribute", self.call("compare", *self.new(1003, 91), "--reference").out)

    def test_the_interval_is_that_of_one_more_machine(self):
        self.fleet()
        row = self.json_of("compare", *self.new(1003), "--reference", "fleet")["rows"][0]
        self.assertEqual((row["base_side"]["machines"], row["base_side"]["days"]), (6, 2))
        self.assertEqual(row["method"], "machines")
        half = (row["difference_interval"]["upper"] - row["difference_interval"]["lower"]) / 2
        spread = statistics.stdev(LEVELS) / 1000 * (1 + 1 / 6) ** 0.5
        self.assertGreater(half / (2.015 * spread), 0.6)  # t of 5 degrees; runs scatter, too
        self.assertLess(half / (2.015 * spread), 1.8)

    def test_a_machine_is_not_its_own_reference(self):
        made = self.fleet()
        row = self.json_of("compare", *made[0], "--reference", "fleet")["rows"][0]
        self.assertEqual(row["base_side"]["machines"], 5)
        self.fleet((1000,), "alone")
        again = self.runs("again", 1000, 3, minute=90, change=machine(0))
        self.assert_refused(self.call("compare", *again, "--reference", "alone"), 4,
                            "no other machine")

    def test_few_machines_tell_nothing(self):
        self.fleet((1000, 1004), "few")
        process = self.call("compare", *self.new(900), "--reference", "few")
        self.assert_verdict(process, 0, "1 INCONCLUSIVE", "it takes 3 that do")
        self.assert_verdict(self.call("gate", *self.new(900), "--reference", "few"), 3)

    def test_several_machines_are_judged_each(self):
        self.fleet()
        process = self.call("compare", *self.new(1001), *self.new(930, 91), "--reference", "fleet")
        self.assert_verdict(process, 0, "1 SLOWER, 1 WITHIN", "run on secret90 (", "run on secret91 (")
        self.assertRegex(unwrapped(process.out), r"run on secret91 \(\w+\), the worst of 2 rows: This "
                         r"machine is slower than 95 % of 6 machines of fleet by [\d.]+ % or more")
        self.assertNotIn("geometric mean", process.out)

    def test_other_work_fits_no_reference_and_says_which_there_are(self):
        self.fleet()

        def half(report, run):
            machine(90)(report, run)
            report["invocation"]["config"]["batch"]["value"] = 128
        other = self.runs("half", 1000, 3, minute=60, change=half)
        self.assert_refused(self.call("compare", *other, "--reference"), 4,
                            "no reference has this work", "fleet (", "batch 256",
                            "--reference fleet says what differs")
        process = self.call("compare", *other, "--reference", "fleet")
        self.assert_verdict(process, 4, "NOT-COMPARABLE", "batch")
        process = self.call("compare", *other, "--reference", "fleet", "--allow-differ", "batch")
        self.assert_verdict(process, 0)
        self.assertIn("batch 128, of the reference 256", unwrapped(process.out))

    def test_what_threatens_the_answer_is_in_the_first_line(self):
        self.fleet()

        def later(report, run):
            machine(90)(report, run)
            run["started_at"] = run["started_at"].replace("2026-11", "2027-09")
            report["tool"]["version"] = "9.0.0"
            report["environments"][0]["virtualisation"]["hypervisor"] = "xen"
        new = self.runs("late", 1000, 3, 60, later)
        codes = [note["code"] for note in self.json_of("compare", *new, "--reference")["notes"]]
        self.assertEqual(codes[:3], ["reference_old", "reference_version", "reference_hypervisor"])
        process = self.call("compare", *new, "--reference")
        first = unwrapped(process.out).split(": WITHIN")[1].split("verdict")[0]
        self.assertIn("the reference is 301 days old", first)
        self.assertIn("the latest run of the reference is of nearmetal 0.1.0, not 9.0.0", first)
        self.assertIn("this one has xen", first)

    def test_reports_say_where_a_machine_stands(self):
        self.fleet()
        process = self.call("report", *self.new(1002), "--reference", "fleet", "--format", "text")
        self.assertEqual(process.returncode, 0, process.err)
        self.assertIn("within what 6 machines of fleet showed", unwrapped(process.out))

    def test_a_reference_is_small_names_nobody_and_takes_no_run_twice(self):
        made = self.fleet()
        with open(self.path("references/fleet.json"), encoding="utf-8") as file:
            text = file.read()
        self.assertNotIn("secret", text)
        self.assertNotIn("GPU-0", text)
        self.assertLess(len(text), 24 * 600 + 6000)
        process = self.call("reference", "add", "fleet", *made[0])
        self.assertIn("added 0 runs, 4 were there already", process.out)
        with open(self.path("references/fleet.json"), encoding="utf-8") as file:
            self.assertEqual(file.read(), text)
        self.assertIn("NVIDIA", self.call("reference", "list").out)
        shown = self.call("reference", "show", "fleet").out
        self.assertRegex(shown, r"\d of 6 machines within what the others show; 90 % are expected")

    def test_sides_have_the_names_that_they_are_given(self):
        def virtual(report, run):
            machine(2)(report, run)
            for gpu in report["environments"][0]["gpus"]:
                gpu["virtualisation"] = "vgpu"
        shared = self.runs("shared", 900, 4, change=virtual)
        whole = self.runs("whole", 1000, 4, minute=30, change=machine(1))
        process = self.call("compare", "--a", "whole card=" + whole[0], *whole[1:],
                            "--b", "vGPU=" + shared[0], *shared[1:], "--html", "pair.html")
        self.assert_verdict(process, 0, "1 SLOWER")
        text = unwrapped(process.out)
        self.assertIn("vGPU is slower than whole card, -", text)
        self.assertIn("note: whole card shows vm, container, passthrough; vGPU shows vm, container, vgpu", text)
        with open(self.path("pair.html"), encoding="utf-8") as file:
            self.assertIn("nearmetal: vGPU against whole card", file.read())
        named = self.json_of("compare", "--a", "a=" + whole[0], "--b", "b=" + shared[0])
        self.assertIn("setups_differ", [note["code"] for note in named["notes"]])
        self.assert_refused(self.call("compare", "--a", *whole, "--b", "x=" + shared[0]), 2,
                            "--a takes one name and files")
        self.assert_refused(self.call("compare", "--a", "x=" + whole[0]), 2, "compare takes one of")

    def test_bad_calls_are_refused(self):
        self.fleet()
        new = self.new(1000, count=2)
        refused = self.assert_refused
        refused(self.call("compare", *new, "--reference", "none"), 5, "no reference none", "fleet (")
        refused(self.call("compare", "--reference", *new), 2, "put --reference after the files")
        refused(self.call("compare", *new, "--reference", "fleet", "--margin", "5%"), 2, "--margin")
        refused(self.call("compare", "--bare", new[0], "--vm", new[1], "--reference"), 2,
                "--reference is the base")
        refused(self.call("gate", *new, "--reference", "--fail-on", "any"), 2, "leave out --fail-on")
        refused(self.call("reference", "add", "../fleet", *new), 2, "no name of a reference")
        refused(self.call("report", *new, "--reference", "--format", "csv"), 2,
                "--format csv has no place for the answer of --reference")

        def stopped(report, run):
            report.update(status="partial", exit_code=130)
            run.update(status="partial", failure="interrupted")
        broken = self.runs("broken", 1000, 1, change=stopped)
        refused(self.call("reference", "add", "broken", *broken), 5, "no run to add to broken")
        self.assertFalse(os.path.exists(self.path("references/broken.json")))
        self.write("references/fleet.json", json.dumps({"schema": "nearmetal/reference"}))
        refused(self.call("reference", "list"), 5, "fleet.json is not a reference")
        os.remove(self.path("references/fleet.json"))
        refused(self.call("compare", *new, "--reference"), 4, "there is none")


if __name__ == "__main__":
    cli.main()
