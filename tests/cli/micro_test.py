"""micro: what it times on this machine, alone and between ranks."""

import json
import os
import shutil
import signal
import subprocess
import unittest

import cli

QUICK = ["micro", "--device", "cpu", "--repetitions", "2", "--seconds", "0.01"]
TINY = ["--model", "resnet20", "--image-size", "32", "--batch", "2", "--threads", "1",
        "--plan-cache", "off"]


def rows_of(text):
    """By name; the first line tells the columns."""
    return {line.split()[0]: line.split()[1:] for line in text.splitlines()[1:]}


class Micro(cli.CliTest):
    def test_lists_what_there_is(self):
        process = self.call("micro", "--device", "cpu", "--list")
        self.assertEqual(process.returncode, 0, process.err)
        names = [line.split(":")[0] for line in process.out.splitlines()]
        self.assertEqual(names[:3], ["cpu/quantum", "copy/device", "product/fp32"])

    def test_times_what_matches(self):
        process = self.call(*QUICK, "^copy", "quantum")
        self.assertEqual(process.returncode, 0, process.err)
        rows = rows_of(process.out)
        self.assertEqual(list(rows), ["cpu/quantum", "copy/device"])
        self.assertIn("device cpu", process.err)
        quantum, p99 = float(rows["cpu/quantum"][0]), float(rows["cpu/quantum"][1])
        # A million multiplications that wait for one another: 3 to 5 clocks each and an addition.
        self.assertTrue(300 < quantum < 50_000, rows)
        self.assertGreaterEqual(p99, 0.9 * quantum)
        self.assertGreater(float(rows["copy/device"][2]), 0.1, "GB/s")

    def test_json_is_that_of_google_benchmark(self):
        process = self.call(*QUICK, "--json", "--quiet", "copy")
        self.assertEqual((process.returncode, process.err), (0, ""))
        document = json.loads(process.out)
        runs = [run for run in document["benchmarks"] if run["run_type"] == "iteration"]
        self.assertEqual(len(runs), 2)
        for run in runs:
            self.assertAlmostEqual(
                run["bytes_per_second"] * run["median_microseconds"] / (2 * 2**28 * 1e6), 1)

    def test_a_signal_keeps_the_probes_that_have_ended(self):
        for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)):
            process = self.start("micro", "--device", "cpu", "--quiet", "--json", "--repetitions", "99",
                                 "--seconds", "0.001", "quantum", "copy/device")
            shown = ""
            while '"p99_microseconds"' not in shown:  # of the first probe
                shown += process.stdout.readline()
            process.send_signal(number)
            shown += process.stdout.read()
            _, err = process.communicate(timeout=cli.limit(60))
            self.assertEqual(process.returncode, code, err)
            names = {run["run_name"] for run in json.loads(shown)["benchmarks"]}
            self.assertEqual(len(names), 1, names)
            self.assertTrue(names.pop().startswith("cpu/quantum"))

    def test_kernels_of_a_step_beside_their_floors(self):
        process = self.call(*QUICK, *TINY, "--json", "^step/(forward|update)/(conv1|fc|sgd)")
        self.assertEqual(process.returncode, 0, process.err)
        found = {run["run_name"].split("/repeats")[0].removesuffix("/manual_time"): run
                 for run in json.loads(process.out)["benchmarks"]
                 if run["run_type"] == "iteration"}
        conv = next(run for name, run in found.items() if name.startswith("step/forward/conv1"))
        self.assertGreater(conv["flops_per_second"], 0)
        self.assertGreater(conv["share_of_floor"], 0)
        self.assertTrue(any(name.startswith("step/forward/fc") for name in found), found)
        # An operand that a cache holds is read faster than from memory, which sets it no floor.
        update = next(run for name, run in found.items() if name.startswith("step/update/sgd"))
        self.assertNotIn("share_of_floor", update)

    def test_refuses(self):
        self.assert_refused(self.call("micro", "--device", "cpu", "--quiet", "nothing-like-this"),
                            2, "no probe", "--list")
        self.assert_refused(self.call("micro", "copy(["), 2, "copy([", "regular expression")
        self.assert_refused(self.call("micro", "--batch", "auto"), 2, "--batch auto")
        self.assert_refused(self.call("micro", "--seconds", "0"), 2, "--seconds")

    @unittest.skipUnless(shutil.which("mpirun"), "there is no mpirun")
    def test_ranks_time_what_is_between_them(self):
        command = ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", "3"]
        if os.geteuid() == 0:
            command.append("--allow-run-as-root")
        process = subprocess.run(
            [*command, cli.EXECUTABLE, *QUICK, "mpi/(ping_pong/8B|.*/4MiB)"], cwd=self.folder,
            env=cli.clean_environment(), stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=cli.limit(100), check=False)
        self.assertEqual(process.returncode, 0, process.stdout + process.stderr)
        rows = rows_of(process.stdout)  # of one rank
        # Few of small ones, each of which waits for a turn where other work takes the CPUs.
        self.assertEqual(sorted(rows), sorted(["mpi/ping_pong/8B"] + [f"mpi/{work}/4MiB" for work in
                         ("ping_pong", "allreduce", "allgather", "broadcast")]))
        moved, bus = (float(rows["mpi/allreduce/4MiB"][i]) for i in (2, 3))
        self.assertAlmostEqual(bus / moved, 2 * 2 / 3, delta=0.02)
        self.assertEqual(rows["mpi/ping_pong/8B"][3], "-")


if __name__ == "__main__":
    cli.main()
