"""What a run prints and writes, on the CPU with a tiny network."""

import json
import math
import os
import pty
import re
import select
import signal
import time

import cli


class Run(cli.CliTest):
    def test_the_table_goes_to_stdout_and_talk_to_stderr(self):
        process = self.tiny("--steps", "3", "--output", "report.json")
        self.assertEqual(process.returncode, 0, process.err)
        for word in ("resnet20 training, fp32, batch 2, 32x32", "throughput", "images/s", "median",
                     "jitter", "loss", "gradient norm", "set-up"):
            self.assertIn(word, process.out)
        self.assertTrue(process.err.startswith("nearmetal: device cpu (asked for)\n"), process.err)
        self.assertIn("report: report.json\n", process.err)
        self.assertNotIn("\r", process.err, "no progress line in a pipe")
        self.assertNotIn("\033", process.out + process.err, "no colour in a pipe")

    def test_the_figures_of_the_report_fit_together(self):
        self.call(*cli.TINY, "--steps", "5", "--seed", "3", "--output", "report.json")
        report = self.report()
        self.assertEqual((report["status"], report["exit_code"]), ("complete", 0))
        run = report["arms"][0]["runs"][0]
        rank = run["ranks"][0]
        window = run["window"]
        self.assertEqual((window["steps"], window["images"]), (5, 10))
        self.assertEqual(window["first_step"], run["warm_up"]["steps"])
        self.assertEqual(len(rank["step_seconds"]), window["first_step"] + 5)
        self.assertEqual(len(rank["loss"]), len(rank["step_seconds"]))
        seconds = sum(rank["step_seconds"][window["first_step"]:])
        self.assertAlmostEqual(window["seconds"], seconds, places=12)
        self.assertAlmostEqual(run["throughput_images_per_second"], 10 / seconds, delta=1e-9 / seconds)
        self.assertEqual(run["parameters"], 336824)
        self.assertTrue(run["proof"]["loss_finite"])
        self.assertGreater(run["proof"]["window_start_gradient_norm"], 0)
        self.assertGreater(rank["device_bytes"], run["parameters"] * 4)
        set_up = rank["set_up"]
        parts = ("start_seconds", "backend_seconds", "prepare_seconds", "first_step_seconds")
        self.assertLessEqual(sum(set_up[part] for part in parts), set_up["total_seconds"] + 0.001)
        config = report["invocation"]["config"]
        self.assertEqual(config["seed"], {"value": 3, "origin": "flag"})
        self.assertEqual(config["momentum"], {"value": 0.9, "origin": "default"})
        self.assertIn("onednn", " ".join(report["environments"][0]["libraries"]).lower())

    def test_a_step_of_several_micro_batches(self):
        out = self.call(*cli.TINY, "--steps", "4", "--accumulate", "3", "--output", "report.json").out
        self.assertIn("resnet20 training, fp32, batch 3 x 2, 32x32", out)
        run = self.report()["arms"][0]["runs"][0]
        self.assertEqual((run["window"]["steps"], run["window"]["images"]), (4, 24))
        self.call(*cli.TINY, "--steps", "4", "--output", "plain.json")
        process = self.call("compare", "plain.json", "report.json")
        self.assertEqual(process.returncode, 4, process.out)
        self.assertIn("accumulate", process.out + process.err)
        for number, arguments, why in (
                ("2", ["--inference"], "--accumulate sums gradients"),
                ("2", ["--forward-only"], "--accumulate sums gradients"),
                ("0", [], "--accumulate must be an integer from 1")):
            process = self.tiny("--accumulate", number, *arguments)
            self.assertEqual(process.returncode, 2, process.err)
            self.assertIn(why, process.err)

    def test_a_stall_is_a_warning_loses_no_series_and_the_duration_is_met(self):
        process = self.start_into_window(*cli.TINY, "--warmup", "1", "--duration", "4",
                                         "--monitor-hz", "100", "--output", "report.json")
        process.send_signal(signal.SIGSTOP)
        time.sleep(2)  # more than ten steps, also where other tests slow them down
        process.send_signal(signal.SIGCONT)
        error = cli.shown_by(process)
        process.communicate(timeout=cli.limit(60))
        self.assertEqual(process.returncode, 0, error)
        run = self.report()["arms"][0]["runs"][0]
        monitoring = run["ranks"][0]["monitoring"]
        self.assertIn("cpu_steal_share", [series["name"] for series in monitoring["series"]])
        self.assertNotEqual(monitoring["verdict"], "unknown")
        self.assertIn("stall", [warning["code"] for warning in run["warnings"]])
        # Not two seconds longer; the steps that are left are counted by how long those before took.
        self.assertAlmostEqual(run["window"]["seconds"], 4, delta=1)

    def test_losses_repeat_with_the_seed_and_differ_without(self):
        losses = []
        for name, seed in (("a", "1"), ("b", "1"), ("c", "2")):
            self.tiny("--steps", "3", "--seed", seed, "--output", name)
            losses.append(self.report(name)["arms"][0]["runs"][0]["ranks"][0]["loss"][:3])
        self.assertEqual(losses[0], losses[1])
        self.assertNotEqual(losses[0], losses[2])

    def test_without_output_the_report_gets_a_name_of_its_own(self):
        process = self.tiny("--steps", "3")
        self.assertEqual(process.returncode, 0, process.err)
        names = os.listdir(self.folder)
        self.assertEqual(len(names), 1)
        self.assertRegex(names[0], r"^nearmetal-resnet20-cpu-\d{8}T\d{6}\.\d{3}Z\.report\.json$")
        self.assertIn("report: " + names[0], process.err)
        self.assertEqual(self.call("validate", names[0]).returncode, 0)

    def test_verify_profile_and_forward_only(self):
        process = self.tiny("--steps", "3", "--verify", "--profile", "--batch", "8", "--output", "a")
        self.assertEqual(process.returncode, 0, process.err)
        self.assertIn("verify         passed", process.out)
        self.assertIn("Where the step goes", process.out)
        self.assertIn("layer1.0.conv1", process.out)
        run = self.report("a")["arms"][0]["runs"][0]
        self.assertTrue(run["proof"]["verify"]["passed"])
        self.assertEqual({entry["phase"] for entry in run["profile"]["entries"]} - {"input"},
                         {"forward", "backward", "update"})
        process = self.tiny("--steps", "3", "--forward-only", "--output", "b")
        self.assertEqual(process.returncode, 0, process.err)
        self.assertIn("resnet20 forward", process.out)
        self.assertNotIn("gradient", process.out)

    def test_inference_reports_latency_and_no_loss(self):
        process = self.tiny("--steps", "3", "--inference", "--profile", "--output", "a")
        self.assertEqual(process.returncode, 0, process.err)
        self.assertIn("resnet20 inference", process.out)
        self.assertRegex(process.out, r"latency +\S+ ms median, \S+ ms p95, ")
        self.assertIn("layer1.0.conv2 + layer1.0.relu ", process.out)
        self.assertNotIn("bn1", process.out)
        run = self.report("a")["arms"][0]["runs"][0]
        self.assertTrue(run["proof"]["outputs_finite"])
        self.assertEqual(run["ranks"][0]["loss"], [])
        self.assertEqual(self.call("validate", "a").returncode, 0)

    def test_more_threads_than_cpus_are_a_warning(self):
        threads = str(len(os.sched_getaffinity(0)) + 1)
        process = self.tiny("--steps", "3", "--threads", threads, "--output", "a")
        self.assertEqual(process.returncode, 0, process.err)
        self.assertRegex(process.out, f"warning +{threads} threads share ")

    def test_the_proof_has_a_learning_rate_of_its_own(self):
        process = self.tiny("--steps", "3", "--verify", "--learning-rate", "0", "--output", "a")
        self.assertEqual(process.returncode, 0, process.err)
        self.assertIn("verify         passed", process.out)

    def test_what_learns_too_slowly_does_not_verify(self):
        process = self.tiny("--batch", "16", "--steps", "3", "--verify", "--momentum", "0",
                            "--zero-init", "--output", "a")
        self.assertEqual(process.returncode, 6)
        self.assertNotIn("images/s", process.out)
        report = self.report("a")
        self.assertEqual((report["status"], report["exit_code"]), ("failed", 6))
        self.assertIsNone(report["arms"][0]["runs"][0]["throughput_images_per_second"])

    def test_the_loss_stays_near_that_of_guessing(self):
        process = self.call("run", "--device", "cpu", "--model", "resnet18", "--image-size", "64",
                            "--batch", "4", "--seed", "3", "--warmup", "1", "--steps", "40",
                            "--plan-cache", "off", "--output", "a")
        self.assertEqual(process.returncode, 0, process.err)
        losses = self.report("a")["arms"][0]["runs"][0]["ranks"][0]["loss"]
        self.assertGreater(len(losses), 40)
        self.assertLess(max(losses), math.log(1000) + 1)

    def test_training_that_diverges_is_no_result(self):
        process = self.tiny("--model", "resnet18", "--steps", "20", "--learning-rate", "1000000",
                            "--output", "a")
        self.assertEqual(process.returncode, 6, process.out)
        self.assertNotIn("images/s", process.out)
        self.assertIn("finite", process.err)
        self.assertIsNone(self.report("a")["arms"][0]["runs"][0]["throughput_images_per_second"])

    def test_what_the_device_cannot_do_is_exit_2(self):
        self.assert_refused(self.tiny("--precision", "fp16", "--quiet", "--output", "a"), 2, "fp16")
        self.assertEqual(os.listdir(self.folder), [])


class Json(cli.CliTest):
    def test_stdout_holds_the_report_and_nothing_else(self):
        for arguments in (["--json"], ["--output", "-"], ["--json", "--profile", "--verify"]):
            with self.subTest(arguments=arguments):
                process = self.tiny("--steps", "3", *arguments)
                self.assertEqual(process.returncode, 0, process.err)
                self.assertEqual(json.loads(process.out)["schema"], "nearmetal/report")
                self.assertEqual(os.listdir(self.folder), [])

    def test_with_output_it_is_in_both_places(self):
        process = self.tiny("--steps", "3", "--json", "--output", "report.json")
        self.assertEqual(json.loads(process.out), self.report())

    def test_quiet_leaves_stderr_empty(self):
        process = self.tiny("--steps", "3", "--quiet")
        self.assertEqual(process.err, "")
        self.assertIn("images/s", process.out)


class Terminal(cli.CliTest):
    def on_terminal(self, *arguments, **variables):
        """What a terminal would get, both streams together."""
        leader, follower = pty.openpty()
        process = self.start(*cli.TINY, *arguments, stdout=follower, stderr=follower,
                             env={**cli.clean_environment(), "TERM": "xterm", **variables})
        os.close(follower)
        shown = b""
        while select.select([leader], [], [], 60)[0]:
            try:
                chunk = os.read(leader, 65536)
            except OSError:  # the other side was closed
                break
            if not chunk:
                break
            shown += chunk
        os.close(leader)
        self.assertEqual(process.wait(timeout=cli.limit(60)), 0)
        process.stdout = process.stderr = None
        return shown.decode()

    def test_progress_and_colour(self):
        shown = self.on_terminal("--duration", "1.5")
        self.assertRegex(shown, r"\r\033\[Kstep \d+ of \d+, \d+ images/s, \d+ s left")
        self.assertRegex(shown, r"\033\[1m[\d.]+ images/s\033\[0m")

    def test_no_color(self):
        shown = self.on_terminal("--duration", "0.5", NO_COLOR="1")
        self.assertFalse(re.search(r"\033\[\d*m", shown), shown)

    def test_no_progress(self):
        for option in ("--no-progress", "--quiet"):
            self.assertNotIn("\r\033[K", self.on_terminal("--duration", "1", option))

    def test_dumb_terminals_get_plain_text(self):
        self.assertNotIn("\033", self.on_terminal("--duration", "0.5", TERM="dumb"))


if __name__ == "__main__":
    cli.main()
