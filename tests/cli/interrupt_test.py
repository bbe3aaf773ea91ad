"""Ctrl-C and termination: what was measured is written."""

import os
import signal
import time

import cli


class Interrupt(cli.CliTest):
    def test_the_report_is_partial(self):
        for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)):
            process = self.start_into_window(*cli.TINY, "--duration", "600", "--output",
                                             "report.json", "--force")
            process.send_signal(number)
            error = cli.shown_by(process)
            out, _ = process.communicate(timeout=cli.limit(60))
            self.assertEqual(process.returncode, code, error)
            self.assertIn("interrupted", out)
            self.assertIn("interrupted", error)
            report = self.report()
            self.assertEqual((report["status"], report["exit_code"]), ("partial", code))
            self.assertEqual(self.call("validate", "report.json").returncode, 0)
            run = report["arms"][0]["runs"][0]
            self.assertGreater(run["window"]["steps"], 0)
            self.assertGreater(run["throughput_images_per_second"], 0)

    def test_nohup_goes_on(self):
        process = self.start(*cli.TINY, "--duration", "2", "--output", "report.json",
                             preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
        for line in process.stderr:
            if line.startswith("prepared"):
                break
        process.send_signal(signal.SIGHUP)
        process.communicate(timeout=cli.limit(60))
        self.assertEqual(process.returncode, 0)
        self.assertEqual(self.report()["status"], "complete")

    def test_a_second_signal_ends_at_once(self):
        process = self.start(*cli.TINY, "--model", "resnet50", "--image-size", "224", "--batch", "24",
                             "--threads", "1",  # so that a step takes seconds on any machine
                             "--output", "report.json")  # seconds a step
        for line in process.stderr:
            if line.startswith("prepared"):
                break
        begun = cli.cpu_seconds(process.pid) + 0.3  # the first step
        self.assertTrue(cli.wait_until(lambda: cli.cpu_seconds(process.pid) > begun, 60))
        process.send_signal(signal.SIGINT)
        for line in process.stderr:
            if "once more stops at once" in line:
                break
        start = time.monotonic()

        def has_ended():
            process.send_signal(signal.SIGINT)  # in the first second it is the same wish
            return process.poll() is not None

        self.assertTrue(cli.wait_until(has_ended, 60))
        process.communicate(timeout=cli.limit(60))
        self.assertEqual(process.returncode, -signal.SIGINT)
        self.assertGreater(time.monotonic() - start, 0.9)
        self.assertLess(time.monotonic() - start, cli.limit(3))

    def test_a_signal_that_arrives_twice_at_once_is_one(self):
        # As GNU timeout sends it: to the process and to its group.
        for _ in range(3):
            process = self.start_into_window(*cli.TINY, "--duration", "600", "--output",
                                             "report.json", "--force", start_new_session=True)
            process.send_signal(signal.SIGTERM)
            os.killpg(process.pid, signal.SIGTERM)
            process.communicate(timeout=cli.limit(60))
            self.assertEqual(process.returncode, 143)
            self.assertEqual(self.report()["status"], "partial")


if __name__ == "__main__":
    cli.main()
