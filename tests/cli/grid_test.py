"""Sweeps with a grid of settings, on the CPU: what runs, what cannot, and how they go on."""

import json
import os
import shutil
import signal
import subprocess
import unittest

import cli

# As TINY_WORK, without the batch.
WORK = ["--model", "resnet20", "--image-size", "32", "--classes", "10", "--threads", "1",
        "--warmup", "1", "--steps", "3"]


class Grid(cli.SweepTest):
    def grid(self, *arguments, **options):
        process = self.start("sweep", "1x1x1", *WORK, "--hosts", "localhost:0", "--output", "s.json",
                             *arguments, **options)
        process.out, process.err = process.communicate(timeout=cli.limit(100))
        return process

    def arms(self):
        self.assertEqual(self.call("validate", "s.json").returncode, 0)
        return {arm["name"]: arm for arm in self.report("s.json")["arms"]}

    @cli.failed_jobs_end_at_once
    def test_what_cannot_run_is_reported_once_and_the_rest_runs(self):
        process = self.grid("--grid", "batch=2,60000,auto", "--grid", "precision=fp32,fp16",
                            "--repeats", "2")
        self.assertEqual(process.returncode, 0, process.err)
        self.assertIn("estimated duration: unknown: 24 steps in all, beside 8 starts", process.err)
        arms = self.arms()
        self.assertEqual(len(arms["batch 2, precision fp32"]["runs"]), 2)
        reasons = {name: arm["unsupported"] for name, arm in arms.items() if arm["unsupported"]}
        self.assertEqual(len(reasons), 5)
        self.assertIn("out of memory", reasons["batch 60000, precision fp32"])
        self.assertIn("not in fp16", reasons["batch 2, precision fp16"])
        self.assertIn("--batch auto is for GPUs", reasons["batch auto, precision fp32"])
        self.assertEqual(process.err.count("batch 60000, precision fp32: unsupported"), 1)
        self.assertEqual(arms["batch 2, precision fp32"]["grid"],
                         {"layout": "1x1x1", "settings": {"batch": "2", "precision": "fp32"}})
        self.assertFalse(os.path.exists(self.path("s.jsonl")), "nothing is left to do")

    @cli.failed_jobs_end_at_once
    def test_where_nothing_runs_the_sweep_has_failed(self):
        process = self.grid("--grid", "precision=fp16", "--grid", "batch=2,4", "--repeats", "1")
        self.assertEqual(process.returncode, 2, process.err)
        self.assertEqual(self.report("s.json")["status"], "failed")
        self.assertEqual(process.err.count("unsupported"), 2)

    def test_an_interrupted_one_goes_on(self):
        words = ["--grid", "batch=2,3", "--grid", "precision=fp16,fp32", "--repeats", "1"]
        process = self.start("sweep", "1x1x1", *WORK, "--hosts", "localhost:0", "--output",
                             "s.json", *words)
        told = ""
        for line in process.stderr:
            told += line
            if "throughput" in line:
                break
        process.send_signal(signal.SIGINT)
        told += process.communicate(timeout=cli.limit(60))[1]
        self.assertEqual(process.returncode, 130, told)
        self.assertIn("go on with: ", told)
        before = self.arms()
        self.assertTrue(any(run["status"] == "complete" for arm in before.values()
                            for run in arm["runs"]))
        process = self.grid(*words, "--resume", "s.jsonl", "--force")
        self.assertEqual(process.returncode, 0, process.err)
        self.assertLessEqual((told + process.err).count("precision fp16: unsupported"), 2)
        arms = self.arms()
        for batch in (2, 3):
            runs = arms[f"batch {batch}, precision fp32"]["runs"]
            self.assertEqual([run["status"] for run in runs], ["complete"])
            self.assertIn("not in fp16", arms[f"batch {batch}, precision fp16"]["unsupported"])

    @unittest.skipIf(shutil.which("mpirun") is None, "no mpirun")
    def test_a_script_hands_it_to_the_reports(self):
        words = ["--hosts", "localhost:0", "--repeats", "2", "--grid", "batch=2,4"]
        process = self.call("plan", "1x1x1", *WORK, *words, "--format", "sh", "--output", "s.sh")
        self.assertEqual(process.returncode, 0, process.err)
        script = subprocess.run(["bash", "s.sh"], cwd=self.folder, env=cli.clean_environment(),
                                capture_output=True, text=True, timeout=cli.limit(100),
                                check=False)
        self.assertEqual(script.returncode, 0, script.stderr)
        os.remove(self.path("s.sh"))
        grids = [self.report(name)["arms"][0]["grid"] for name in sorted(os.listdir(self.folder))]
        self.assertEqual(grids, [{"layout": "1x1x1", "settings": {"batch": batch}}
                                 for batch in ("2", "2", "4", "4")])
        process = self.call("report", self.folder)
        self.assertIn("The smallest batch within 5 % of the best", process.out)

    def test_each_of_several_jobs_of_a_script_has_its_own(self):
        words = ["2*(1x1x1)", "--hosts", "a:2", "--grid", "batch=2,4", "--format", "sh"]
        script = self.call("plan", *words).out
        for job in (1, 2):
            self.assertEqual(script.count('{"layout":"2*(1x1x1), job %d"' % job), 2, script)

    def test_of_a_file_and_its_charts(self):
        layouts = {"hosts": [{"name": "localhost", "gpus": 0}], "repeats": 1,
                   "layouts": [{"name": "cpu", "jobs": [{"instances": [{"host": "localhost",
                                                                        "ranks": 1}]}]}],
                   "workload": {"model": "resnet20", "image_size": 32, "threads": 1, "warmup": 1,
                                "steps": 3},
                   "grid": {"batch": [2, 4], "zero_init": [True, False]}}
        process = self.sweep_file(layouts)
        self.assertEqual(process.returncode, 0, process.err)
        self.assertIn("within 5 % of the best", process.out)
        self.assertEqual(list(self.arms()), [f"batch {batch}, zero_init {zero}" for batch in (2, 4)
                                             for zero in ("true", "false")])
        judge = json.loads(self.call("schema", "layout").out)
        self.assertEqual(judge["$defs"]["grid"]["properties"]["batch"]["type"], "array")
        process = self.call("report", "s.json", "--format", "html", "--output", "s.html")
        self.assertEqual((process.returncode, process.err), (0, ""))
        with open(self.path("s.html"), encoding="utf-8") as page:
            text = page.read()
        for title in ("Throughput over batch", "Throughput over zero_init"):
            self.assertIn(f"Chart: {title}", text)
        self.assertIn("Memory is not known: ", text)
        self.assertIn("The smallest batch within 5 % of the best", text)


if __name__ == "__main__":
    cli.main()
