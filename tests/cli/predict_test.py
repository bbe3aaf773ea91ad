"""Forecasts of sizes that were not measured: by a real sweep of two sizes, and by published ones."""

import json
import os
import pathlib
import re
import shutil
import unittest

import jsonschema

import cli
from imports import PUBLISHED, ROOT, ImportTest

PAGE = (ROOT / "docs" / "forecast.md").read_text(encoding="utf-8")


class Predict(ImportTest):
    def predicted(self, *arguments):
        process = self.call("predict", *arguments, "--json")
        self.assertEqual(process.returncode, 0, process.err)
        report = json.loads(process.out, parse_constant=self.fail)
        schema = json.loads((ROOT / "reports/schema/report.schema.json").read_text("utf-8"))
        jsonschema.Draft202012Validator(schema).validate(report)
        return report

    def published(self, name, side="bare-metal"):
        self.call("import", "pairs", str(PUBLISHED / name), "--side", side, "--output", "series.json",
                  "--force")
        return "series.json"

    def assert_refused(self, code, words, *arguments):
        process = self.call(*arguments)
        self.assertEqual(process.returncode, code, process.out + process.err)
        self.assertIn(words, process.err)
        self.assertEqual(len(process.err.splitlines()), 1, process.err)

    @unittest.skipUnless(shutil.which("mpirun"), "needs mpirun")
    def test_a_real_sweep_of_two_sizes(self):
        process = self.call("sweep", "1x1x1", "1x1x2", "--hosts", "localhost:0", *cli.TINY_WORK,
                            "--steps", "12", "--output", "sweep.json")
        self.assertEqual(process.returncode, 0, process.err)
        sizes = ("--gpus", "2,64,2", "--per-host", "8", "--network", "25G,20us")
        process = self.call("predict", "sweep.json", *sizes, "--output", "forecast.json", "--html", "f.html")
        self.assertEqual(process.returncode, 0, process.err)
        self.assertRegex(process.out.splitlines()[0], r"^error [+-][\d.]+ % at '1x1x2', held out")
        self.assertIn("<caption>Forecast</caption>", pathlib.Path(self.path("f.html")).read_text("utf-8"))
        self.assertEqual(self.call("validate", "forecast.json").returncode, 0)
        report = self.predicted("sweep.json", *sizes)
        self.assertEqual(report["kind"], "predicted")
        basis, = report["forecasts"]
        self.assertTrue(basis["has_exchange"])
        points = [arm["forecast"] for arm in report["arms"]]
        self.assertEqual([(point["ranks"], point["hosts"]) for point in points], [(2, 1), (64, 8)])
        self.assertEqual(points, [arm["forecast"] for arm in self.predicted("sweep.json", *sizes)["arms"]])
        process = self.call("compare", "forecast.json", "sweep.json")
        self.assertEqual(process.returncode, 0, process.err)
        # A run of each on a busy machine may contradict any law, as two ranks that are faster than twice one.
        self.assertRegex(process.out, "[01] of 1 measured size within the 90 % band")
        for command in (("compare", "sweep.json", "forecast.json"), ("gate", "forecast.json", "sweep.json"),
                        ("gate", "sweep.json", "forecast.json"), ("baseline", "add", "x", "forecast.json"),
                        ("report", "forecast.json"), ("predict", "forecast.json", "--gpus", "4")):
            self.assert_refused(4, "holds forecasts", *command)
        self.assert_refused(2, "2 arms", "rerun", "forecast.json")
        self.assert_refused(2, "give --network", "predict", "sweep.json", "--gpus", "64")
        self.assert_refused(2, "two numbers of ranks", "predict", "sweep.json#1x1x1", "--gpus", "2")

    def test_refusals(self):
        series = self.published("scaling/xe8545_a100.json")
        for words, *arguments in (("predict needs --gpus", series), ("predict takes FILE", "--gpus", "2"),
                                  ("400G,3us", series, "--gpus", "2", "--network", "400G"),
                                  ("--pipeline", series, "--gpus", "2", "--pipeline", "2"),
                                  ("from 1 to 65536", series, "--gpus", "0"),
                                  ("throughput alone", series, "--gpus", "2", "--network", "400G,3us")):
            self.assert_refused(2, words, "predict", *arguments)

    def test_bare_metal_and_vm(self):
        table = {"pairs": [{"name": f"{gpus}", "gpus": gpus, "bare_metal": {"images_per_second": [bare]},
                            "vm": {"images_per_second": [vm]}}
                           for gpus, bare, vm in ((1, 1000, 990), (2, 1960, 1880), (4, 3900, 3650))]}
        file = self.write("pairs.json", json.dumps(table))
        for side in ("bare-metal", "vm"):
            self.call("import", "pairs", file, "--side", side, "--output", f"{side}.json")
        sides = ("--bare", "bare-metal.json", "--vm", "vm.json", "--gpus", "64")
        process = self.call("predict", *sides)
        self.assertEqual(process.returncode, 0, process.err)
        self.assertIn("the VM loses 5 % or more from 4 ranks on", process.out)
        for side in ("bare-metal", "vm"):
            os.mkdir(self.path(side))
            self.write(f"{side}/foreign.json", "{}")
            shutil.copy(self.path(f"{side}.json"), self.path(f"{side}/series.json"))
        folders = self.call("predict", "--bare", "bare-metal", "--vm", "vm", "--gpus", "64")
        self.assertEqual(folders.out, process.out)
        for side in ("bare-metal", "vm"):
            self.assertIn(f"{side}/foreign.json is no report and is left out", folders.err)
        bare, vm = self.predicted(*sides)["arms"]
        self.assertIsNone(bare["forecast"]["loss"])
        self.assertGreater(vm["forecast"]["loss"]["median"], 0.05)

    def test_the_table_of_errors_in_the_documentation(self):
        rows = re.findall(r"^\| `(\S+)` \| (\d+) \| (\d+) \| ([\d,]+) \| ([+-][\d.]+) % ", PAGE, re.M)
        self.assertGreaterEqual(len(rows), 9)
        for name, per_host, ranks, measured, error in rows:
            side = "vm" if name == "four_nodes.json" else "bare-metal"
            report = self.predicted(self.published(name, side), "--gpus", "1", "--per-host", per_host)
            held, = report["forecasts"][0]["hold_outs"]
            self.assertEqual(held["ranks"], int(ranks), name)
            self.assertEqual(round(held["measured"]), int(measured.replace(",", "")), name)
            self.assertAlmostEqual(100 * (held["rate"]["median"] / held["measured"] - 1), float(error),
                                   delta=0.15, msg=name)


if __name__ == "__main__":
    cli.main()
