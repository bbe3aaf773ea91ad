"""report: the forms that other tools read, judged by their parsers."""

import contextlib
import csv
import io
import json
import os
import pathlib
import pty
import shutil
import subprocess
import xml.etree.ElementTree as ElementTree

from prometheus_client.parser import text_string_to_metric_families

import cli
import consumers
import made_up

SOURCE = pathlib.Path(__file__).parent.parent / "data" / "report-1.0.json"


class Released(cli.CliTest):
    """Reports of every version so far: 1.0 made up, 1.2 of two H200s, without names and serials."""

    def test_stay_readable(self):
        reports = sorted(SOURCE.parent.glob("report-*.json"))
        self.assertGreaterEqual(len(reports), 2)
        for report in reports:
            with self.subTest(report=report.name):
                process = self.call("validate", str(report))
                self.assertEqual(process.returncode, 0, process.err)
                version = report.stem.removeprefix("report-")
                self.assertIn(f"schema {version}", process.out)
                for form in ("markdown", "csv", "html"):
                    process = self.call("report", str(report), "--format", form, "--output",
                                        f"out-{version}.{form}", "--no-charts")
                    self.assertEqual(process.returncode, 0, process.err)


class Costs(cli.CliTest):
    """docs/cost.md, and what a user may get wrong."""

    PRICE = ("--price-per-gpu-hour", "1.50")

    def published(self):
        four_nodes = SOURCE.parent / "published" / "four_nodes.json"
        process = self.call("import", "pairs", str(four_nodes), "--side", "vm")
        return self.write("vm.json", process.out)

    def test_example_of_the_docs(self):
        process = self.call("report", self.published(), *self.PRICE, "--deadline", "6")
        self.assertEqual(process.returncode, 0, process.err)
        page = (SOURCE.parents[2] / "docs" / "cost.md").read_text(encoding="utf-8")
        printed = process.out.splitlines()
        quoted = [line for line in page.splitlines() if line.startswith(("| 1 n", "| 2 n", "| 4 n", "- time", "- res"))]
        self.assertEqual(len(quoted), 14)
        for line in quoted:
            self.assertIn(line, printed)

    def test_csv_of_hours_by_hand(self):
        process = self.call("report", self.published(), "--samples", "115M", "--format", "csv")
        hours = [float(row["value"]) for row in csv.DictReader(io.StringIO(process.out))
                 if row["metric"] == "training_hours"]
        self.assertEqual(len(hours), 3)
        for found, throughput in zip(hours, (2757.21, 5391.751667, 10675.0925)):
            self.assertAlmostEqual(found, 115e6 / throughput / 3600)

    def test_a_comparison_has_a_row_for_each_figure(self):
        report = self.published()
        process = self.call("compare", f"{report}#1 node", f"{report}#1 node", *self.PRICE, "--json")
        rows = {row["metric"]: row for row in json.loads(process.out)["rows"]}
        self.assertAlmostEqual(rows["training_cost"]["base_side"]["geometric_mean"],
                               1.5 * 90 * 1281167 / 2757.21 / 3600)
        self.assertEqual(len(rows), 4)

    def test_wrong_options_are_refused_in_a_line(self):
        report = self.published()
        for options, words in (
                (("--price-per-gpu-hour", "0"), "above 0"), (("--price-per-kwh", "nan"), "above 0"),
                (("--price-per-gpu-hour", "-1"), "above 0"), (("--samples", "115X"), "'115X'"),
                (("--samples", "5", "--epochs", "3"), "exclude each other"),
                (("--deadline", "6"), "need --price-per-gpu-hour"),
                ((*self.PRICE, "--format", "junit"), "has no costs")):
            with self.subTest(options=options):
                process = self.call("report", report, *options)
                self.assertEqual((process.returncode, process.out), (2, ""))
                self.assertIn(words, process.err)
                self.assertEqual(process.err.count("\n"), 1, process.err)
        process = self.call("sweep", "--json", *self.PRICE)
        self.assertEqual(process.returncode, 2)
        self.assertIn("has no costs", process.err)


class Report(cli.CliTest):
    def setUp(self):
        super().setUp()
        report = json.loads(SOURCE.read_text(encoding="utf-8"))
        report["arms"][0]["name"] = "<a href='x'>\"&,\n\u0001"
        self.hostile = self.write("hostile.json", json.dumps(report))

    def test_csv(self):
        process = self.call("report", self.hostile, "--format", "csv")
        self.assertEqual(process.returncode, 0, process.err)
        rows = list(csv.DictReader(io.StringIO(process.out)))
        self.assertEqual(len(rows), 6)
        self.assertEqual(rows[0]["metric"], "throughput_images_per_second")
        self.assertEqual(float(rows[0]["value"]), 50.11471854186516)
        ranks = json.loads(SOURCE.read_text(encoding="utf-8"))["arms"][0]["runs"][0]["ranks"]
        self.assertEqual((rows[5]["metric"], float(rows[5]["value"])),
                         ("prepare_seconds",
                          max(rank["set_up"]["prepare_seconds"] for rank in ranks)))
        config = json.loads(SOURCE.read_text(encoding="utf-8"))["invocation"]["config"]
        for field in ("model", "device", "precision", "batch"):
            self.assertEqual(rows[0][field], str(config[field]["value"]))

    def test_names_of_files_that_are_no_text_leave_csv_and_junit_text(self):
        name = os.path.join(os.fsencode(self.folder), b"r\xff.json")
        shutil.copy(SOURCE, name)
        for form in ("csv", "junit"):
            process = self.call("report", name, "--format", form, text=False)
            self.assertEqual(process.returncode, 0, process.err)
            self.assertIn("r?.json", process.out.decode("utf-8"))

    def test_junit(self):
        out = self.call("report", self.hostile, "--format", "junit").out
        consumers.assert_junit(self, out)
        suite = ElementTree.fromstring(out)
        self.assertEqual(suite.get("tests"), "1")
        self.assertEqual(suite.find("testcase").get("classname")[:22], "nearmetal.<a href='x'>")

    def test_markdown_and_github(self):
        for form in ("markdown", "github"):
            process = self.call("report", self.hostile, "--format", form)
            self.assertIn("| 50.11 |", process.out)
            self.assertNotIn("<a", process.out)

    def test_text(self):
        process = self.call("report", self.hostile, "--format", "text")
        self.assertEqual(process.returncode, 0, process.err)
        self.assertIn("throughput_images_per_second, images/s", process.out)
        self.assertIn("  50.11  ", process.out)
        self.assertNotIn("\x01", process.out)
        self.assertNotIn("|", process.out)

    def test_a_terminal_is_given_text_and_a_file_markdown(self):
        screen, end = pty.openpty()
        process = self.call("report", self.hostile, stdout=end)
        os.close(end)
        shown = b""
        with contextlib.suppress(OSError):  # at its end
            while part := os.read(screen, 65536):
                shown += part
        os.close(screen)
        self.assertEqual(process.returncode, 0, process.err)
        self.assertIn("throughput_images_per_second, images/s  ", shown.decode())
        self.assertNotIn("|", shown.decode())
        self.assertIn("| 50.11 |", self.call("report", self.hostile).out)

    def test_forms_of_a_sweep_show_how_it_scales(self):
        sweep = self.write("sweep.json", json.dumps(made_up.sweep(0, False, 1)))
        for form in ("text", "markdown", "github", "csv", "prometheus"):
            with self.subTest(form=form):
                process = self.call("report", sweep, "--format", form)
                self.assertIn("speedup", process.out)
                self.assertIn("efficiency", process.out)
        rows = csv.DictReader(io.StringIO(self.call("report", sweep, "--format", "csv").out))
        speedups = {row["arm"]: row for row in rows if row["metric"] == "speedup"}
        self.assertEqual({name: (row["ranks"], row["against"]) for name, row in speedups.items()},
                         {"1x1x2": ("2", "1x1x1"), "1x1x4": ("4", "1x1x1")})
        self.assertAlmostEqual(float(speedups["1x1x4"]["value"]), 3.84, delta=0.1)

    def test_groups_hold_machines_apart(self):
        for name, speed in (("a", 1), ("b", 0.9), ("c", 0.9)):
            first_minute = {"a": 0, "b": 60, "c": 120}[name]
            self.write(name + ".json", json.dumps(made_up.sweep(first_minute, False, speed)))
        process = self.call("report", "metal=a.json", "vm=b.json", "c.json", "--format", "csv")
        self.assertEqual(process.returncode, 0, process.err)
        rows = list(csv.DictReader(io.StringIO(process.out)))
        runs = [row["arm"] for row in rows if row["metric"] == "throughput_images_per_second"]
        self.assertEqual((runs.count("1x1x2, metal"), runs.count("1x1x2, vm")), (4, 8))
        self.assertEqual({(row["arm"], row["against"]) for row in rows if row["metric"] == "speedup"
                          and row["ranks"] == "2"},
                         {("1x1x2, metal", "1x1x1, metal"), ("1x1x2, vm", "1x1x1, vm")})
        one = self.call("report", "metal=a.json#1x1x2", "vm=b.json#1x1x2", "--format", "text")
        self.assertIn("1x1x2, metal", one.out)
        self.assertNotIn("1x1x1", one.out)

    def of_machine(self, name, minute, host, speed=1, **facts):
        """A sweep that began at that minute, of a machine whose ids follow from its name."""
        report = made_up.sweep(minute, False, speed)
        for environment in report["environments"]:
            environment.update({"host_name": host, "boot_id": f"boot {minute}",
                                "machine_id": (host.encode().hex() * 16)[:16], **facts})
        return self.write(name, json.dumps(report))

    def rows_of(self, *places):
        """Layout, runs and reference of each row."""
        process = self.call("report", *places, "--format", "markdown")
        self.assertEqual(process.returncode, 0, process.err)
        cells = [line[2:-2].split(" | ") for line in process.out.splitlines() if line.startswith("| ")]
        head = next(i for i, row in enumerate(cells) if row[0] == "layout")
        table = cells[head + 2:]
        return {row[0]: (row[2], row[-1]) for row in table if len(row) == len(cells[head])}, process.out

    def test_machines_are_rows_of_their_own(self):
        self.of_machine("a.json", 0, "metal")
        self.of_machine("b.json", 60, "guest", 0.5)
        self.of_machine("c.json", 120, "guest", 0.5)
        rows, text = self.rows_of("a.json", "b.json", "c.json")
        self.assertEqual(rows["1x1x2, metal"], ("4", "1x1x1, metal"))
        self.assertEqual(rows["1x1x2, guest"], ("8 in 2 files", "1x1x1, guest"))
        self.assertEqual(len(rows), 6, text)
        self.assertIn("'1x1x4, guest' has ", text)
        self.of_machine("d.json", 180, "metal", machine_id="f" * 16)
        self.assertIn("1x1x2, metal (ffffffff)", self.rows_of("a.json", "d.json")[0])

    def test_nights_of_one_machine_are_one_row(self):
        nights = [self.of_machine(f"{i}.json", 60 * i, "metal") for i in range(6)]
        rows, text = self.rows_of(*nights)
        self.assertEqual(rows["1x1x2"], ("24 in 6 files", "1x1x1"))
        self.assertEqual(len(rows), 3, text)
        pod = self.of_machine("pod.json", 300, "pod", boot_id="boot 0", machine_id="0" * 16)
        self.assertEqual(len(self.rows_of(nights[0], pod)[0]), 3, "of the same boot")

    def test_runs_of_different_work_are_rows_of_their_own(self):
        other = json.loads(SOURCE.read_text(encoding="utf-8"))
        other["invocation"]["config"]["batch"]["value"] = 7
        other["arms"][0]["runs"][0]["started_at"] = "2026-11-22T00:00:00Z"
        larger = self.write("other.json", json.dumps(made_up.settled(other)))
        text = self.call("report", str(SOURCE), larger, "--format", "text").out
        for batch in (8, 7):
            self.assertRegex(text, f"(?m)^run, batch {batch}: [0-9.]+ images/s in 1 run$")
        self.assertNotIn("did different work", text)

    def test_other_figures_are_listed_on_request(self):
        sweep = self.write("sweep.json", json.dumps(made_up.sweep(0, False, 1)))
        self.assertNotIn("median_step_seconds", self.call("report", sweep).out)
        shown = self.call("report", sweep, "--metric", "median_step_seconds").out
        self.assertIn("| 1x1x4 | median_step_seconds, ms |", shown)
        self.assertNotIn("set_up_seconds", shown)
        self.assertIn("set_up_seconds", self.call("report", sweep, "--metric", "all").out)
        self.assert_refused(self.call("report", sweep, "--metric", "speed"), 2, "--metric", "speed")

    def test_groups_without_files_are_refused(self):
        self.write("a.json", json.dumps(made_up.sweep(0, False, 1)))
        self.write("x=a.json", json.dumps(made_up.sweep(0, False, 1)))
        self.assertNotIn(", x", self.call("report", "x=a.json").out, "a file of that name")
        for places, words in ((["metal="], "a group without a file"),
                              (["a.json", "vm=a.json"], "before the first group: NAME=a.json"),
                              (["metal=a.json", "--output", "a.json", "--force"], "a.json")):
            with self.subTest(places=places):
                self.assert_refused(self.call("report", *places), 2, words)

    def test_html(self):
        arguments = ["report", self.hostile, "--format", "html", "--output", "runs.html"]
        self.assertEqual(self.call(*arguments).returncode, 0)
        text = pathlib.Path(self.path("runs.html")).read_text(encoding="utf-8")
        self.assertIn("<svg", text)
        for word in ("<script", "<a href='x'", "src=", "@import", "<img"):
            self.assertNotIn(word, text)

    def test_one_chart_alone(self):
        sweep = self.write("sweep.json", json.dumps(made_up.sweep(0, False, 1)))
        arguments = ["report", sweep, "--format", "svg", "--output", "speedup.svg"]
        process = self.call(*arguments, "--chart", "speedup")
        self.assertEqual((process.returncode, process.err), (0, ""))
        root = ElementTree.parse(self.path("speedup.svg")).getroot()
        texts = [text.text for text in root.iter("{http://www.w3.org/2000/svg}text")]
        for text in ("Speedup over 1x1x1", "ideal", "1x1x1 to 1x1x4", "ranks"):
            self.assertIn(text, texts)
        self.assert_refused(self.call(*arguments), 2, "--chart", "throughput, runs, speedup")
        self.assert_refused(self.call(*arguments, "--chart", "spedup"), 2, "--chart", "speedup")
        self.assert_refused(self.call(*arguments[:1], self.hostile, *arguments[2:], "--chart",
                                      "profile"), 2, "--chart profile", "--profile")
        self.assert_refused(self.call("report", sweep, "--chart", "speedup"), 2, "--format svg")

    def test_plot_data_draws_the_same_charts(self):
        sweep = self.write("sweep.json", json.dumps(made_up.sweep(0, False, 1)))
        process = self.call("report", sweep, "--plot-data", "plots")
        self.assertEqual(process.returncode, 0, process.err)
        folder = pathlib.Path(self.path("plots"))
        names = sorted(path.stem for path in folder.glob("*.svg"))
        self.assertEqual(names, ["distribution", "efficiency", "profile", "runs", "speedup", "steps",
                                 "throughput"])
        with open(folder / "speedup.csv", encoding="utf-8") as file:
            rows = [row for row in csv.DictReader(file) if row["mark"] == "point"]
        self.assertEqual([row["ranks"] for row in rows], ["1", "2", "4"])
        self.assertEqual([row["text"] for row in rows], ["1x1x1", "1x1x2", "1x1x4"])
        self.assertEqual(float(rows[0]["speedup"]), 1)
        self.assertAlmostEqual(float(rows[2]["speedup"]), 3.84, delta=0.05)
        self.assert_refused(self.call("report", sweep, "--plot-data", "plots"), 9, "--force")
        for name in names:
            ElementTree.parse(folder / (name + ".svg"))

    def test_forms_of_other_tools(self):
        sweep = self.write("sweep.json", json.dumps(made_up.sweep(0, False, 1)))
        forms = {form: self.call("report", sweep, "--format", form)
                 for form in ("go", "prometheus", "google-benchmark", "github-action-benchmark")}
        for form, process in forms.items():
            self.assertEqual(process.returncode, 0, form + process.err)
        consumers.assert_benchmarks(self, forms["go"].out)
        self.assertEqual([name for name, _, _ in consumers.benchmarks(forms["go"].out)],
                         [f"Train/arm=1x1x{ranks}" for ranks in (1, 2, 4) for _ in range(4)])
        lines = list(csv.reader(io.StringIO(self.call("report", sweep, "--format", "otava").out)))
        self.assertEqual(lines[0], ["time", "commit", "1x1x1", "1x1x2", "1x1x4"])
        self.assertEqual(len(lines), 2, "one session")
        self.assertGreater(float(lines[1][4]), 0)
        self.assert_prometheus(forms["prometheus"].out)
        google = json.loads(forms["google-benchmark"].out)["benchmarks"]
        self.assertEqual(len(google), 12)
        self.assertEqual({b["name"] for b in google}, {"train/1x1x1", "train/1x1x2", "train/1x1x4"})
        for benchmark in google:
            self.assertGreater(benchmark["real_time"], 200)
            self.assertEqual(benchmark["time_unit"], "ms")
        action = json.loads(forms["github-action-benchmark"].out)
        self.assertEqual([entry["name"].split(" (")[0] for entry in action],
                         ["1x1x1", "1x1x2", "1x1x4"])
        for entry in action:
            self.assertEqual(entry["unit"], "images/s")
            self.assertRegex(entry["range"], r"^± [0-9.]+$")

    def test_a_mean_of_different_work_is_exit_4(self):
        other = json.loads(SOURCE.read_text(encoding="utf-8"))
        other["invocation"]["config"]["model"]["value"] = "resnet34"
        other["arms"][0]["runs"][0]["started_at"] = "2026-11-22T00:00:00Z"
        reports = [str(SOURCE), self.write("other.json", json.dumps(made_up.settled(other)))]
        for form in ("prometheus", "google-benchmark", "github-action-benchmark"):
            process = self.call("report", *reports, "--format", form)
            self.assert_refused(process, 4, "different work", "resnet34")
            self.assertEqual(self.call("report", reports[1], "--format", form).returncode, 0)
        for form in ("csv", "go", "markdown"):
            process = self.call("report", *reports, "--format", form)
            self.assertEqual(process.returncode, 0, process.err)
            self.assertIn("resnet34", process.out)

    def assert_prometheus(self, text):
        consumers.assert_prometheus(self, text)
        read = {family.name: family for family in text_string_to_metric_families(text)}
        self.assertEqual({family.type for family in read.values()}, {"gauge"})
        self.assertIn("nearmetal_throughput_images_per_second_interval", read)
        throughput = read["nearmetal_throughput_images_per_second"].samples
        self.assertEqual([sample.labels["arm"] for sample in throughput], ["1x1x1", "1x1x2", "1x1x4"])

    def test_the_log_of_a_job_is_read(self):
        first, second = made_up.sweep(0, True, 1.0, runs=1), made_up.sweep(60, True, 0.9, runs=1)
        second["arms"][0]["name"] = "other"
        texts = [json.dumps(each, indent=2) for each in (first, second)]
        log = self.write("job.log", "launch 1 of 2: {a}\n" + "\n".join(texts) + "\nbye\n")
        rows = list(csv.DictReader(io.StringIO(self.call("report", log, "--format", "csv").out)))
        self.assertEqual({row["arm"] for row in rows},
                         {arm["name"] for report in (first, second) for arm in report["arms"]})
        self.assertEqual(self.call("validate", log).out.count("valid, schema"), 2)
        self.assertEqual(self.call("report", log + "#other", "--format", "go").out.count("other"), 1)
        self.assert_refused(self.call("report", log + "#none", "--format", "text"), 2, "'none'")
        self.assert_refused(self.call("rerun", log), 5, "holds 2 reports")
        process = self.call("baseline", "add", "nightly", log)
        self.assertEqual(process.returncode, 0, process.err)
        torn = self.write("torn.log", texts[0][:-99] + "\n" + texts[1])
        self.assert_refused(self.call("report", torn, "--format", "text"), 5, "torn.log:1 is not")
        self.assertIn("valid, schema", self.call("validate", torn).out)

    def test_a_file_is_not_overwritten(self):
        arguments = ["report", self.hostile, "--format", "csv", "--output", "runs.csv"]
        self.assertEqual(self.call(*arguments).returncode, 0)
        self.assert_refused(self.call(*arguments), 9, "--force")
        self.assertEqual(self.call(*arguments, "--force").returncode, 0)


if __name__ == "__main__":
    cli.main()
