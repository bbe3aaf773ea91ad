"""Ctrl-C and termination: what was measured is written."""

import signal
import time

import cli


class Interrupt(cli.CliTest):
    def interrupted(self, number, after_seconds):
        process = self.start(*cli.TINY, "--duration", "600", "--output", "report.json", "--force")
        for line in process.stderr:
            if line.startswith("prepared"):
                break
        time.sleep(after_seconds)
        process.send_signal(number)
        process.out, process.err = process.communicate(timeout=cli.limit(60))
        return process

    def test_the_report_is_partial(self):
        for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)):
            for after_seconds in (0.5, 2, 8, 32):  # warm-up must be over: a busy machine takes long
                process = self.interrupted(number, after_seconds)
                self.assertEqual(process.returncode, code, process.err)
                self.assertIn("interrupted", process.out)
                self.assertIn("interrupted", process.err)
                report = self.report()
                self.assertEqual((report["status"], report["exit_code"]), ("partial", code))
                self.assertEqual(self.call("validate", "report.json").returncode, 0)
                run = report["arms"][0]["runs"][0]
                if run["window"]:
                    break
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
        process = self.start(*cli.TINY, "--model", "resnet50", "--image-size", "224", "--batch", "8",
                             "--output", "report.json")  # seconds a step
        for line in process.stderr:
            if line.startswith("prepared"):
                break
        time.sleep(0.5)  # the first step has begun
        process.send_signal(signal.SIGINT)
        time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        start = time.monotonic()
        process.communicate(timeout=cli.limit(60))
        self.assertEqual(process.returncode, -signal.SIGINT)
        self.assertLess(time.monotonic() - start, cli.limit(2))


if __name__ == "__main__":
    cli.main()
