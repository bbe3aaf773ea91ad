"""stress: a device kept busy in one way, and the rate at which it was."""

import json
import signal
import subprocess

import cli

CPU = ["stress", "--device", "cpu", "--seconds", "0.2"]


class Stress(cli.CliTest):
    def test_prints_the_rate_of_the_load(self):
        process = self.call(*CPU, "copy")
        self.assertEqual(process.returncode, 0, process.err)
        self.assertRegex(process.out, r"^copy: [0-9.]+ GB/s over [0-9.]+ s \(256 MiB from memory")
        self.assertIn("device cpu", process.err)
        rate = json.loads(self.call(*CPU, "--json", "--quiet", "compute").out)
        self.assertEqual((rate["load"], rate["bytes_per_second"]), ("compute", 0))
        self.assertGreater(rate["flops_per_second"], 1e9)
        self.assertGreaterEqual(rate["seconds"], 0.2)

    def test_reports_to_its_sweep_why_it_failed(self):
        process = self.call("stress", "--device", "cpu", "noise", "--conducted")
        events = [json.loads(line) for line in process.out.splitlines()]
        failures = [event["failure"] for event in events if event["event"] == "failure"]
        self.assertEqual([failure["exit_code"] for failure in failures], [2])
        self.assertIn("'noise' is not available", failures[0]["text"])

    def test_refuses_what_the_device_has_not(self):
        self.assert_refused(self.call(*CPU, "pcie"), 2, "'pcie' is not available", "cpu")
        self.assert_refused(self.call(*CPU, "noise"), 2, "'noise'", "micro --list")
        self.assert_refused(self.call("stress"), 2, "LOAD")
        for seconds in ("0", "0.0001", "1ms"):
            self.assert_refused(self.call(*CPU, "copy", "--seconds", seconds), 2, "--seconds")
        self.assert_refused(self.call(*CPU, "copy", "--gpu-part", "0:50,50"), 8, "only a GPU")
        self.assert_refused(self.call(*CPU, "copy", "--gpu-part", "2:50,50"), 2, "--gpu-part")

    def test_an_interrupt_ends_it_with_the_rate_so_far(self):
        process = subprocess.Popen(
            [cli.EXECUTABLE, "stress", "copy", "--device", "cpu", "--seconds", "60"],
            cwd=self.folder, env=cli.clean_environment(), stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True)
        self.assertIn("device cpu", process.stderr.readline())
        process.send_signal(signal.SIGINT)  # while the load is being prepared
        out, _ = process.communicate(timeout=cli.limit(20))
        self.assertEqual(process.returncode, 130)
        self.assertRegex(out, r"^copy: [0-9.]+ GB/s")


if __name__ == "__main__":
    cli.main()
