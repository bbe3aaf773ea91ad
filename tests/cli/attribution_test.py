"""run --attribute and what compare makes of it: causes that are injected for real."""

import json
import os
import subprocess
import sys
import unittest

import jsonschema

import cli

CPUS = sorted(os.sched_getaffinity(0))
# Keeps a CPU busy until its standard input ends, as it does with this test.
HOG = "import os, sys, threading\n" \
      "threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()\n" \
      "while True: pass"


class Attribution(cli.CliTest):
    def attributed(self, name, cpus, threads):
        """A short run bound to these CPUs."""
        process = self.tiny("--threads", str(threads), "--steps", "12", "--attribute",
                            "--output", name, "--force", preexec_fn=lambda: os.sched_setaffinity(0, cpus))
        self.assertEqual(process.returncode, 0, process.err)
        self.assertIn("timing this machine", process.err)
        return self.path(name)

    def hog(self, cpu):
        process = subprocess.Popen([sys.executable, "-c", HOG], stdin=subprocess.PIPE,
                                   preexec_fn=lambda: os.sched_setaffinity(0, {cpu}))
        self.addCleanup(process.wait)
        self.addCleanup(process.stdin.close)
        return process

    def explanation(self, base, new, *options):
        process = self.call("compare", base, new, "--json", *options)
        self.assertEqual(process.returncode, 0, process.out + process.err)
        document = json.loads(process.out)
        jsonschema.validate(document, json.loads(self.call("schema", "comparison").out))
        return next(iter(document["explanations"]), None)

    def was_disturbed(self, name):
        """Whether others kept CPUs busy while this run was timed, by its own monitor."""
        rank = self.report(name)["arms"][0]["runs"][0]["ranks"][0]
        series = {one["name"]: one["mean"] for one in rank["monitoring"]["series"]}
        return series.get("cpus_busy_with_others", 0) > 0.3 or series["cpu_steal_share"] > 0.05

    def assert_adds_up(self, explanation):
        self.assertAlmostEqual(
            sum(layer["seconds"] or 0 for layer in explanation["layers"])
            + explanation["unexplained_seconds"], explanation["difference_seconds"], 9)

    def explained_by_cpu(self, run_pair):
        """The explanation of a pair of runs whose first layer is the CPU; of the first that has it.

        What else runs here may disturb the base as much as the cause does the other run: then
        nothing is shown, and the test is skipped.
        """
        for _ in range(3):
            explanation = self.explanation(*run_pair())
            if explanation:
                self.assert_adds_up(explanation)
                first = explanation["layers"][0]
                if first["layer"] == "cpu" and (first["share_of_step"] or 0) > 0.2:
                    return explanation
            disturbed = self.was_disturbed("base")
        if disturbed:
            self.skipTest("other processes keep these CPUs busy")
        return self.fail(explanation)

    def test_a_competing_load_is_named_first(self):
        def pair():
            base = self.attributed("base", {CPUS[0]}, 1)
            hog = self.hog(CPUS[0])
            new = self.attributed("new", {CPUS[0]}, 1)
            hog.stdin.close()
            return base, new
        explanation = self.explained_by_cpu(pair)
        codes = [cause["code"] for cause in explanation["causes"] if cause["layer"] == "cpu"]
        self.assertNotIn("cpu_set_smaller", codes)
        text = self.call("compare", "base", "new", "--html", "page.html", "--no-charts").out
        self.assertRegex(text, r"(?m)^layer +ms a step")
        self.assertRegex(text, r"(?m)^likely cause \d, cpu: ")
        self.assertRegex(text, r"(?m)^launch .*insensitive to this layer")
        with open(self.path("page.html"), encoding="utf-8") as page:
            self.assertIn("Where the difference of 'run' comes from", page.read())

    @unittest.skipIf(len(CPUS) < 2, "there is one CPU")
    def test_too_few_cpus_are_named_first(self):
        explanation = self.explained_by_cpu(
            lambda: (self.attributed("base", set(CPUS[:2]), 2),
                     self.attributed("new", {CPUS[0]}, 2)))
        self.assertEqual(explanation["causes"][0]["code"], "cpu_set_smaller")

    def test_pageable_input_is_named_first(self):
        work = ["run", "--device", "cuda", "--model", "resnet18", "--forward-only", "--launch",
                "stream", "--attribute", "--duration", "1", "--quiet", "--plan-cache", "plans.json"]
        for name, memory in (("base", "host"), ("new", "pageable")):
            process = self.call(*work, "--input", memory, "--output", name)
            if process.returncode == 8:
                self.skipTest("there is no GPU")
            self.assertEqual(process.returncode, 0, process.err)
        explanation = self.explanation("base", "new", "--allow-differ", "input")
        self.assert_adds_up(explanation)
        self.assertEqual(explanation["layers"][0]["layer"], "input")
        self.assertEqual(explanation["causes"][0]["code"], "pageable_input")

    def test_probes_are_in_a_valid_report_and_need_both_sides(self):
        report = json.loads(self.tiny("--steps", "3", "--attribute", "--json").out)
        jsonschema.validate(report, json.loads(self.call("schema").out))
        probes = report["arms"][0]["runs"][0]["ranks"][0]["probes"]
        times = {probe["name"]: probe for probe in probes["probes"]}
        self.assertEqual(list(times), ["cpu/quantum", "copy/device", "product/fp32"])
        for probe in times.values():
            self.assertGreater(probe["median_seconds"], 0)
        self.assertGreater(probes["needs"]["kernels"], 50)
        self.assertGreater(probes["needs"]["compute_seconds"], 0)
        self.assertEqual(probes["needs"]["memory_seconds"], 0, "a cache holds it all")
        self.write("with.json", json.dumps(report))
        process = self.tiny("--steps", "3", "--output", "without.json")
        self.assertEqual(process.returncode, 0, process.err)
        out = self.call("compare", "with.json", "without.json").out
        self.assertIn("run both sides with --attribute", " ".join(out.split()))
        self.assertNotIn("Where the difference", out)


if __name__ == "__main__":
    cli.main()
