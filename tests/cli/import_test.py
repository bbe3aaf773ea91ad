"""Published logs of other programs: what is read, what is refused, and the table of the docs."""

import json
import os
import re
import shutil
import subprocess

import jsonschema

import cli
from imports import PAGE, PREFIXES, PUBLISHED, REPORT, ROOT, ImportTest


class Readers(ImportTest):
    def test_mlperf(self):
        report = self.imported("mlperf", PUBLISHED / "mlperf_result.txt", "--source", "a URL")
        self.assertEqual(report["kind"], "imported")
        self.assertEqual(report["sources"][0]["origin"], "a URL")
        self.assertEqual(len(report["sources"][0]["sha256"]), 64)
        run, = report["arms"][0]["imported"]
        # The median of the epochs but the first, of 47, 48 and 50 s.
        self.assertAlmostEqual(run["throughput_images_per_second"], 1281167 / 48)
        self.assertEqual(run["work"], {"benchmark": "resnet", "global_batch_size": "3264",
                                       "optimizer": "lars", "system": "Example 8 GPU server"})
        self.assertIsNone(run["world_size"])
        self.assertIsNone(report["invocation"]["config"])

    def test_tf_cnn_benchmarks(self):
        report = self.imported("tf_cnn_benchmarks", PUBLISHED / "tf_cnn_benchmarks.log")
        run, = report["arms"][0]["imported"]
        self.assertEqual(run["throughput_images_per_second"], 620.52)
        self.assertEqual((run["world_size"], run["work"]["batch"]), (2, "64"))
        self.assertIsNone(run["started_at"])
        self.assertNotIn("precision", run["work"])
        self.assertEqual(run["work"]["forward_only"], "no")

    def test_forward_only_of_tf_cnn_benchmarks_is_inference(self):
        text = self.text_of("tf_cnn_benchmarks.log")
        self.assertIn("training", text)
        # BenchmarkMode.FORWARD_ONLY in constants.py of tensorflow/benchmarks; with a hyphen nearmetal 0.2.
        for mode in ("forward only", "forward-only"):
            log = self.write("forward.log", text.replace("training", mode))
            run, = self.imported("tf_cnn_benchmarks", log)["arms"][0]["imported"]
            self.assertEqual((run["work"]["inference"], run["work"]["forward_only"]), ("yes", "no"))

    def test_nccl_tests(self):
        report = self.imported("nccl-tests", PUBLISHED / "nccl_tests.log")
        found = {arm["name"]: arm["imported"][0] for arm in report["arms"]}
        run = found["all_reduce 134217728 bytes, in place, 2 GPUs, NVIDIA A100-SXM4-80GB"]
        self.assertEqual(run["bus_bandwidth_bytes_per_second"], 186.46e9)
        self.assertEqual((run["world_size"], run["line"]), (2, 12))
        self.assertIsNone(run["throughput_images_per_second"])
        self.assertEqual(len(found), 2, "8 bytes have no bandwidth that is resolved")

    def test_other_line_ends_and_prefixes_change_nothing(self):
        def figures(kind, file):
            return [(arm["name"], arm["imported"]) for arm in self.imported(kind, file)["arms"]]
        prefixes = PREFIXES
        for kind, name in (("mlperf", "mlperf_result.txt"), ("nccl-tests", "nccl_tests.log"),
                           ("tf_cnn_benchmarks", "tf_cnn_benchmarks.log")):
            expected = figures(kind, PUBLISHED / name)
            lines = self.text_of(name).splitlines()
            for prefix in prefixes.values():
                with self.subTest(kind=kind, prefix=prefix):
                    text = "".join(prefix + line + "\r\n" for line in lines)
                    self.assertEqual(figures(kind, self.write("other.log", text)), expected)

    def test_other_ranks_are_left_out(self):
        for form in ("[1,{}]<stdout>:", "{:2}: ", "[prterun-node1-4242@1,{}]<stdout>: ", "[{}]<stdout>:",
                     "[{}] ", "Sun Nov 29 11:09:24 2026[1,{}]<stdout>:"):
            text = "".join(f"{form.format(rank)}{line}\n" for line in
                           self.text_of("tf_cnn_benchmarks.log").splitlines() for rank in (0, 11))
            report = self.imported("tf_cnn_benchmarks", self.write("ranks.log", text))
            self.assertEqual(len(report["arms"][0]["imported"]), 1, form)

    def test_two_runs_in_a_file_are_two(self):
        for kind, name in (("mlperf", "mlperf_result.txt"), ("nccl-tests", "nccl_tests.log"),
                           ("tf_cnn_benchmarks", "tf_cnn_benchmarks.log")):
            file = self.write("two.log", 2 * self.text_of(name))
            for arm in self.imported(kind, file)["arms"]:
                self.assertEqual([run["number"] for run in arm["imported"]].count(0) <= 1, True)
                self.assertEqual(len(arm["imported"]), 2)

    def test_a_file_twice_is_refused(self):
        file = str(PUBLISHED / "mlperf_result.txt")
        self.assert_refused(self.call("import", "mlperf", file, file), 2, "twice")


class Strictness(ImportTest):
    def test_a_cut_log_is_refused_wherever_it_is_cut(self):
        for kind, name in (("mlperf", "mlperf_result.txt"), ("nccl-tests", "nccl_tests.log"),
                           ("tf_cnn_benchmarks", "tf_cnn_benchmarks.log")):
            text = self.text_of(name)
            last = {"mlperf": "run_stop", "nccl-tests": "# Avg",
                    "tf_cnn_benchmarks": "total images"}[kind]
            end = text.index(last)
            for cut in range(0, end, 97):
                process = self.call("import", kind, self.write("cut.log", text[:cut]))
                self.assertEqual(process.returncode, 5, (kind, cut, process.out, process.err))
                self.assertRegex(process.err, r"cut\.log:\d+: ")

    def test_mlperf(self):
        stops = lambda *rest: self.assert_stops("mlperf", "mlperf_result.txt", *rest)
        stops(lambda text: text.replace('"resnet"', '"bert"'), 2, "import reads resnet")
        stops(lambda text: text.replace('"epoch_num": 2}', '"epoch_num": 9}', 1), 15, "another")
        stops(lambda text: text.replace('"train_samples"', '"samples"'), 20, "lacks train_samples")
        stops(lambda text: text.replace('"time_ms": 1651000000000', '"time_ms": "now"', 1), 1,
              "time_ms must be")
        stops(lambda text: text.replace("{", "[", 1), 1, "JSON")
        stops(lambda text: "".join(line for line in text.splitlines(True) if "run_stop" not in line)
              + text, 30, "a run starts", "line 11 has no run_stop")

    def test_tf_cnn_benchmarks(self):
        stops = lambda *rest: self.assert_stops("tf_cnn_benchmarks", "tf_cnn_benchmarks.log", *rest)
        stops(lambda text: text.replace("620.52", "nan"), 24, "a number above 0")
        stops(lambda text: text.replace("Model: ", "Modell:"), 24, "lacks 'Model:'")
        stops(lambda text: text.replace("64.0 per", "63.0 per"), 24, "no multiple")
        stops(lambda text: text.replace("total images", "images"), 25, "ends here")
        stops(lambda text: text.replace("Mode:        training", "Mode:        evaluation"), 1,
              "import reads training")
        half = "".join(self.text_of("tf_cnn_benchmarks.log").splitlines(True)[:12])
        stops(lambda text: half + text, 13, "keep the output of one rank")

    def test_nccl_tests(self):
        stops = lambda *rest: self.assert_stops("nccl-tests", "nccl_tests.log", *rest)
        stops(lambda text: text.replace("186.05      0", "186.05      3"), 12, "#wrong is 3")
        stops(lambda text: text.replace("Rank  1", "Rank  2"), 6, "rank 1")
        stops(lambda text: text.replace("redop    root     time", "redop     time"), 9, "columns")
        stops(lambda text: text.replace(" 721.4 ", " "), 12, "12 values")

    def test_pairs(self):
        def refuse(change, *words):
            file = self.changed("mlperf_pairs.json", change)
            process = self.call("import", "pairs", file, "--side", "vm")
            self.assert_refused(process, 5, "changed.log", *words)
        refuse(lambda text: text.replace('"vm"', '"VM"'), "/pairs/0/VM")
        refuse(lambda text: text.replace("27071", '"27071"'), "/pairs/0/vm/images_per_second/0")
        refuse(lambda text: text[:400], "JSON")
        process = self.call("import", "pairs", str(PUBLISHED / "mlperf_pairs.json"))
        self.assert_refused(process, 2, "--side")


class Uses(ImportTest):
    def test_they_are_never_taken_with_others(self):
        bare, vm = self.sides("mlperf_pairs.json")
        measured = str(REPORT)
        for command in (["compare", measured, vm], ["report", measured, vm],
                        ["compare", "--base", bare, "--new", vm, measured]):
            self.assert_refused(self.call(*command), 4, "never taken together")
        for command in (["gate", bare, vm], ["gate", measured, vm], ["gate", vm, measured],
                        ["baseline", "add", "main", vm], ["rerun", f"{vm}#H100, 1 node of 8 GPUs"]):
            self.assert_refused(self.call(*command), 4, "imported results")

    def test_a_report_is_of_one_nature(self):
        imported = self.imported("mlperf", PUBLISHED / "mlperf_result.txt")
        measured = json.loads(REPORT.read_text(encoding="utf-8"))
        schema = json.loads((ROOT / "reports/schema/report.schema.json").read_text("utf-8"))
        judge = jsonschema.Draft202012Validator(schema)
        judge.validate(measured)
        config = measured["invocation"]["config"]
        for report, change in (
                (imported, lambda r: r.update(kind="measured")),
                (imported, lambda r: r["arms"][0].update(kind="measured")),
                (imported, lambda r: r["arms"][0].update(imported=[])),
                (imported, lambda r: r["arms"][0].update(runs=measured["arms"][0]["runs"])),
                (imported, lambda r: r.update(sources=[])),
                (imported, lambda r: r["invocation"].update(config=config)),
                (measured, lambda r: r["invocation"].update(config=None)),
                (measured, lambda r: r["invocation"].update(config_sha256=None)),
                (measured, lambda r: r.update(kind="imported")),
                (measured, lambda r: r["arms"][0].update(kind="imported")),
                (measured, lambda r: r["arms"][0].update(imported=imported["arms"][0]["imported"])),
                (measured, lambda r: r.update(sources=imported["sources"]))):
            changed = json.loads(json.dumps(report))
            change(changed)
            self.assertFalse(judge.is_valid(changed))
            process = self.call("validate", self.write("changed.json", json.dumps(changed)))
            self.assertEqual(process.returncode, 5, process.out)

    def test_logs_are_compared_with_logs(self):
        first = self.path("first.json")
        self.call("import", "mlperf", str(PUBLISHED / "mlperf_result.txt"), "--output", first)
        slower = self.changed("mlperf_result.txt", lambda text: text.replace("3264", "3200"))
        second = self.path("second.json")
        self.call("import", "mlperf", slower, "--output", second)
        process = self.call("compare", first, second)
        self.assertEqual(process.returncode, 4)
        self.assertIn("global_batch_size", process.out)
        process = self.call("compare", first, second, "--allow-differ", "global_batch_size")
        self.assertEqual(process.returncode, 0, process.err)
        self.assertIn("not verified by MLCommons", process.out)
        self.call("import", "nccl-tests", str(PUBLISHED / "nccl_tests.log"), "--output",
                  self.path("links.json"))
        process = self.call("report", self.path("links.json"))
        self.assertIn("bus_bandwidth_bytes_per_second, GB/s", process.out)

    def test_every_form_shows_them(self):
        bare, vm = self.sides("mlperf_pairs.json")
        for form in ("markdown", "text", "html", "github", "csv"):
            process = self.call("report", vm, "--format", form)
            self.assertEqual(process.returncode, 0, process.err)
            self.assertIn("A100", process.out)
            self.assertIn("imported", process.out)
        for form in ("go", "junit", "google-benchmark", "prometheus", "github-action-benchmark"):
            process = self.call("report", vm, "--format", form)
            self.assert_refused(process, 4, "only runs of nearmetal itself", "imported")
        process = self.call("compare", "--bare", bare, "--vm", vm, "--json")
        notes = [note["code"] for row in json.loads(process.out)["rows"] for note in row["notes"]]
        self.assertEqual(notes.count("imported"), 3)


class Docs(ImportTest):
    def test_the_examples_of_the_help_work(self):
        os.mkdir(self.path("bin"))
        os.symlink(cli.EXECUTABLE, self.path("bin/nearmetal"))
        for name, shown in (("mlperf_result.txt", "result_0.txt"),
                            ("tf_cnn_benchmarks.log", "train.log"),
                            ("nccl_tests.log", "all_reduce.log"),
                            ("mlperf_pairs.json", "published_pairs.json")):
            shutil.copy(PUBLISHED / name, self.path(shown))
        environment = {**cli.clean_environment(),
                       "PATH": self.path("bin") + ":" + os.environ["PATH"]}
        commands = re.findall(r"^  (nearmetal .*)$", self.call("import", "--help").out, re.M)
        self.assertEqual(len(commands), 6)
        for command in commands:
            process = subprocess.run(["bash", "-c", command], cwd=self.folder, env=environment,
                                     text=True, capture_output=True, check=False)
            self.assertEqual(process.returncode, 0, command + process.stderr)

    def assert_in_page(self, output, *patterns):
        lines = [line.rstrip() for line in PAGE.splitlines()]
        for line in output.splitlines():
            if any(re.search(pattern, line) for pattern in patterns):
                self.assertIn(line.rstrip(), lines)

    def test_the_table_of_public_vms_is_what_the_commands_give(self):
        bare, vm = self.sides("mlperf_pairs.json")
        process = self.call("compare", "--bare", bare, "--vm", vm, "--sort", "layout", "--markdown")
        self.assertEqual(process.returncode, 0, process.err)
        self.assertEqual(process.out.count("GPUs |"), 3)
        self.assert_in_page(process.out, r"^\|", "verdict:")
        self.assertIn("not verified by MLCommons", process.out)
        self.assertIn("different machines", process.out)
        compared = json.loads(self.call("compare", "--bare", bare, "--vm", vm, "--json").out)
        self.assertIn("other_machines", [note["code"] for note in compared["notes"]])
        for figures in ("-1.13 %", "-1.27 % [-1.37, -1.17]", "INCONCLUSIVE"):
            self.assertIn(figures, process.out)

    def test_the_worked_example_is_what_the_commands_give(self):
        bare, vm = self.sides("four_nodes.json")
        process = self.call("report", vm, "--format", "markdown")
        self.assert_in_page(process.out, r"^\| .*node.*weak")
        for figure in ("1.956", "3.872", "97.78 %", "96.79 %"):
            self.assertIn(figure, process.out)
        process = self.call("compare", "--bare", bare, "--vm", f"{vm}#4 nodes", "--markdown")
        self.assert_in_page(process.out, r"^\| 4 nodes")
        self.assertIn("-1.32 %", process.out)
        self.assertIn("INCONCLUSIVE", process.out)


if __name__ == "__main__":
    cli.main()
