"""Ctrl-C and termination: what was measured is written."""

import signal
import time

import cli


class Interrupt(cli.CliTest):
    def interrupted(self, number, *arguments):
        process = self.start(*cli.TINY, "--duration", "600", "--output", "report.json", *arguments)
        for line in process.stderr:
            if line.startswith("prepared"):
                break
        time.sleep(1)
        process.send_signal(number)
        process.out, process.err = process.communicate(timeout=60)
        return process

    def test_the_report_is_partial(self):
        for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
            with self.subTest(signal=number):
                process = self.interrupted(number, "--force")
                self.assertEqual(process.returncode, code, process.err)
                self.assertIn("partial", process.out)
                self.assertIn("interrupted", process.err)
                report = self.report()
                self.assertEqual((report["status"], report["exit_code"]), ("partial", code))
                run = report["arms"][0]["runs"][0]
                self.assertGreater(run["window"]["steps"], 0)
                self.assertGreater(run["throughput_images_per_second"], 0)
                self.assertEqual(self.call("validate", "report.json").returncode, 0)

    def test_a_second_signal_ends_at_once(self):
        process = self.start(*cli.TINY, "--model", "resnet152", "--image-size", "448", "--batch",
                             "16", "--output", "report.json")  # some seconds a step
        for line in process.stderr:
            if line.startswith("prepared"):
                break
        process.send_signal(signal.SIGINT)
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        start = time.monotonic()
        process.communicate(timeout=60)
        self.assertEqual(process.returncode, -signal.SIGINT)
        self.assertLess(time.monotonic() - start, 2)


if __name__ == "__main__":
    cli.main()
