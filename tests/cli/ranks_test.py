"""Several ranks on this machine under a real mpirun: what they report and refuse."""

import contextlib
import json
import os
import signal
import subprocess
import time

import cli
import processes


# Of 1.1 MB: three in fp32, two in 16 bits. With a larger network ranks spend seconds on every exchange.
SEVERAL_BUCKETS = ["--bucket-mib", "1"]


class Ranks(cli.CliTest):
    def start_job(self, *contexts, **options):
        options = {"cwd": self.folder, "env": cli.clean_environment(), "text": True,
                   "stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE,
                   "stderr": subprocess.PIPE, **options}
        return subprocess.Popen(cli.mpirun(*contexts), **options)

    def start_job_until(self, remark, *arguments):
        """Two ranks, once the first has made a remark that begins so."""
        process = self.start_job((2, [*arguments, "--output", "report.json"]),
                                 start_new_session=True)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        for line in process.stderr:
            if line.startswith(remark):
                break
        return process

    def job(self, *contexts, **options):
        process = self.start_job(*contexts, **options)
        process.out, process.err = process.communicate(timeout=cli.limit(100))
        return process

    def run_of(self, process, code=0):
        self.assertEqual(process.returncode, code, process.out + process.err)
        report = self.report()
        self.assertEqual(report["exit_code"], code)
        self.assertEqual(self.call("validate", "report.json").returncode, 0)
        return report["arms"][0]["runs"][0]

    @cli.failed_jobs_end_at_once
    def test_a_refused_command_line_is_reported_once(self):
        process = self.job((3, ["--steps", "none"]))
        self.assertEqual(process.returncode, 2, process.err)
        self.assertEqual(process.err.count("--steps must be an integer"), 1, process.err)

    @cli.failed_jobs_end_at_once
    def test_a_rank_with_other_options_says_why_they_are_refused(self):
        process = self.job((1, ["--steps", "2"]), (1, ["--steps", "none"]))
        self.assertEqual(process.returncode, 2, process.err)
        self.assertEqual(process.err.count("--steps must be an integer"), 1, process.err)

    def test_one_network_on_several_ranks(self):
        process = self.job((3, [*SEVERAL_BUCKETS, "--steps", "4", "--warmup", "2", "--verify",
                                "--gradient-type", "fp32", "--profile", "--output", "report.json"]))
        run = self.run_of(process)
        self.assertEqual(run["world_size"], 3)
        self.assertEqual([rank["rank"] for rank in run["ranks"]], [0, 1, 2])
        self.assertEqual(run["window"]["images"], 4 * 2 * 3)
        first = run["window"]["first_step"]
        slowest = max(sum(rank["step_seconds"][first:]) for rank in run["ranks"])
        self.assertAlmostEqual(run["window"]["seconds"], slowest)
        self.assertAlmostEqual(run["throughput_images_per_second"], 24 / slowest)
        self.assertEqual(len({tuple(rank["loss"]) for rank in run["ranks"]}), 3, "own images each")
        self.assertEqual((run["proof"]["replicas_identical"], run["proof"]["sums_exact"]),
                         (True, True))
        self.assertTrue(run["proof"]["verify"]["passed"])
        exchange = run["communication"]
        self.assertEqual(exchange["all_reduce"], "mpi")
        self.assertIn("/s a link (", process.out)
        self.assertEqual(exchange["bytes_per_step"],
                         sum(bucket["bytes"] for bucket in exchange["buckets"]))
        self.assertGreater(len(exchange["buckets"]), 2)
        self.assertEqual({bucket["type"] for bucket in exchange["buckets"]}, {"fp32"})
        self.assertIn("of gradients per step as fp32 in", process.out)
        values = exchange["bytes_per_step"] / 4
        self.assertTrue(1 <= values / run["parameters"] < 1.02, values)
        bucket = exchange["buckets"][0]
        self.assertAlmostEqual(bucket["bus_bandwidth_bytes_per_second"] /
                               (4 / 3 * bucket["bytes"] / bucket["seconds"]), 1)
        self.assertGreater(exchange["exposed_seconds_per_step"], 0)
        best = max(bucket["bus_bandwidth_bytes_per_second"] for bucket in exchange["buckets"])
        self.assertEqual(exchange["best_bus_bandwidth_bytes_per_second"], best)
        self.assertAlmostEqual(exchange["least_seconds_per_step"] /
                               (4 / 3 * exchange["bytes_per_step"] / best), 1)
        self.assertLessEqual(exchange["least_seconds_per_step"], exchange["buckets_seconds"])
        self.assertIn("at least", process.out)
        names = {entry["name"] for entry in run["profile"]["entries"] if entry["phase"] == "exchange"}
        self.assertTrue(names)
        self.assertFalse([name for name in names if "fp32" in name], "as they are")
        self.assertIn("3 on", process.out)
        self.assertIn("gradients averaged every step", process.out)
        self.assertEqual(process.out.count("throughput"), 1, "one rank speaks")

    def test_ranks_send_the_mean_of_micro_batches(self):
        run = self.run_of(self.job((2, [*SEVERAL_BUCKETS, "--steps", "3", "--warmup", "1",
                                        "--accumulate", "3", "--output", "report.json"])))
        self.assertEqual(run["window"]["images"], 3 * 2 * 3 * 2)
        self.assertEqual({bucket["type"] for bucket in run["communication"]["buckets"]}, {"fp32"}, "unasked")
        self.assertEqual((run["proof"]["replicas_identical"], run["proof"]["sums_exact"]),
                         (True, True))

    def test_gradients_travel_in_the_type_that_is_asked_for(self):
        for wire, *more in ("bf16",), ("fp16", "--loss-scale", "8"):
            process = self.job((2, [*SEVERAL_BUCKETS, "--steps", "2", "--warmup", "1", "--profile",
                                    "--gradient-type", wire, *more, "--force", "--output", "report.json"]))
            run = self.run_of(process)
            exchange = run["communication"]
            self.assertEqual([bucket["type"] for bucket in exchange["buckets"]], [wire, wire])
            values = exchange["bytes_per_step"] / 2
            self.assertTrue(1 <= values / run["parameters"] < 1.02, values)
            self.assertEqual((run["proof"]["replicas_identical"], run["proof"]["sums_exact"]),
                             (True, True))
            self.assertIn(f"of gradients per step as {wire} in", process.out)
            names = {entry["name"] for entry in run["profile"]["entries"]
                     if entry["phase"] == "exchange"}
            self.assertLessEqual({"bucket 0 to " + wire, "all buckets from " + wire}, names)
            self.assertEqual([rank["skipped_updates"] for rank in run["ranks"]], [0, 0])

    @cli.failed_jobs_end_at_once
    def test_gradients_that_their_type_does_not_hold_fail_the_run(self):
        process = self.job((2, ["--steps", "2", "--gradient-type", "fp16", "--loss-scale", "1e7",
                                "--output", "report.json"]))
        self.assertIn("every update was skipped", self.run_of(process, 6)["failure"])

    def test_a_rank_alone_sends_no_gradients(self):
        process = self.tiny("--steps", "2", "--gradient-type", "bf16", "--output", "report.json")
        self.assertIsNone(self.run_of(process)["communication"])

    def test_the_size_of_buckets_is_measured_where_asked_for(self):
        process = self.job((2, ["--steps", "4", "--bucket-mib", "auto", "--output", "report.json"]))
        exchange = self.run_of(process)["communication"]
        tried = {bucket["bucket_mib"]: bucket["step_seconds"] for bucket in exchange["tried"]}
        self.assertEqual(sorted(tried), [0, 4, 8, 16, 32])
        self.assertEqual(exchange["bucket_mib"], min(tried, key=tried.get))
        self.assertIn("step by size of bucket: all at once", process.err)
        setting = self.report()["invocation"]["config"]["bucket_mib"]
        self.assertEqual(setting, {"value": exchange["bucket_mib"], "origin": "flag"})
        self.assertEqual(exchange["unknown"]["nccl"], "NCCL is for GPUs")

    def test_ranks_independent_of_each_other(self):
        run = self.run_of(self.job((2, ["--steps", "4", "--warmup", "2", "--update", "independent",
                                        "--output", "report.json"])))
        self.assertIsNone(run["communication"])
        self.assertIsNone(run["proof"]["replicas_identical"])
        rates = [8 / sum(rank["step_seconds"][-4:]) for rank in run["ranks"]]
        self.assertAlmostEqual(run["throughput_images_per_second"] / sum(rates), 1)

    def test_cpus_are_shared(self):
        self.run_of(self.job((2, ["--steps", "1", "--threads", "0", "--output", "report.json"])))
        threads = self.report()["invocation"]["config"]["threads"]["value"]
        self.assertEqual(threads, max(1, len(os.sched_getaffinity(0)) // 2))

    @cli.failed_jobs_end_at_once
    def test_a_bad_setting_is_reported_once(self):
        process = self.job((2, ["--batch", "1", "--image-size", "4"]))
        self.assertEqual(process.returncode, 2, process.err)
        self.assertEqual(process.err.count("nearmetal: "), 1, process.err)
        self.assertFalse(os.path.exists(self.path("report.json")))

    @cli.failed_jobs_end_at_once
    def test_sums_by_nccl_between_cpus_are_refused(self):
        for way in "hierarchical", "auto":
            process = self.job((2, ["--all-reduce", way]))
            self.assertEqual(process.returncode, 2, process.err)
            self.assertEqual(process.err.count("--all-reduce is for GPUs"), 1, process.err)

    @cli.failed_jobs_end_at_once
    def test_another_number_of_ranks_is_refused(self):
        process = self.job((2, ["--ranks", "3"]))
        self.assertEqual(process.returncode, 2, process.err)
        self.assertIn("--ranks 3: this job has 2 ranks", process.err)
        self.assert_refused(self.tiny("--ranks", "2"), 2, "--ranks 2: this job has 1 rank\n")

    def test_a_launcher_that_mpi_does_not_know_is_refused(self):
        process = self.tiny(env={**cli.clean_environment(), "SLURM_STEP_NUM_TASKS": "2"})
        self.assertEqual(process.returncode, 2, process.err)
        self.assertIn("started 2 processes, but MPI sees 1", process.err)

    def test_launchers_are_known_by_their_variables(self):
        # As horovod/runner/gloo_run.py, torch/distributed/elastic/agent/server/local_elastic_agent.py,
        # mpirun_rsh of MVAPICH2, and Hydra set them. WORLD_SIZE alone is that of a pod, whose
        # processes torchrun would start.
        for variables, launched in (({"HOROVOD_SIZE": "2", "HOROVOD_RANK": "1"}, True),
                                    ({"WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "none"}, True),
                                    ({"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}, True),
                                    ({"WORLD_SIZE": "2", "LOCAL_RANK": "0"}, True),
                                    ({"MV2_COMM_WORLD_SIZE": "2"}, True), ({"PMI_SIZE": "2"}, True),
                                    ({"WORLD_SIZE": "2"}, False),
                                    ({"WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1"}, False),
                                    ({"HOROVOD_SIZE": "1"}, False)):
            process = self.call("tf_cnn_benchmarks", "--model=resnet50", "--num_gpus=2", "--print",
                                env={**cli.clean_environment(), **variables})
            self.assertEqual("mpirun or srun starts the ranks" in process.err, launched, variables)

    @cli.failed_jobs_end_at_once
    def test_ranks_that_differ_are_refused(self):
        process = self.job((1, ["--seed", "1", "--output", "report.json"]), (1, ["--seed", "2"]))
        self.assertEqual(process.returncode, 2, process.err)
        self.assertIn("rank 1 (", process.err)
        self.assertRegex(process.err, r"differs from rank 0 \(.*\): --seed 2 against 1\n")
        self.assertFalse(os.path.exists(self.path("report.json")))

    @cli.failed_jobs_end_at_once
    def test_gradients_that_lie_in_other_places_are_not_exchanged(self):
        with open("/proc/cpuinfo") as cpus:
            if " avx2 " not in cpus.read():
                self.skipTest("takes a CPU with AVX2")
        process = self.job((1, ["--output", "report.json"]),
                           (1, [], "export ONEDNN_MAX_CPU_ISA=SSE41;"))
        self.assertEqual(process.returncode, 2, process.err)
        self.assertRegex(process.err, r"rank 1 \(.*\): it cannot exchange gradients .* has conv1.weight: .*, as it has conv1.weight: ")

    @cli.failed_jobs_end_at_once
    def test_a_rank_that_never_joins_is_named(self):
        process = self.job((1, ["--join-timeout", "1"]), (1, [], "sleep 100;"))
        self.assertEqual(process.returncode, 7, process.err)
        self.assertRegex(process.err,
                         r"nearmetal: gave up after 1.0 s on host \S+: rank 1 did not join \(--join-timeout\)")

    @cli.failed_jobs_end_at_once
    def test_a_rank_that_keeps_the_others_waiting_is_named(self):
        os.mkfifo(self.path("facts"))  # nobody writes to it
        process = self.job((1, ["--join-timeout", "1"]), (1, ["--host-facts", "facts"]))
        self.assertEqual(process.returncode, 7, process.err)
        self.assertRegex(process.err, r"nearmetal: gave up .*: rank 1 \(process \d+\) kept the others waiting")

    @cli.failed_jobs_end_at_once
    def test_a_rank_that_is_stopped_is_named_and_what_was_measured_is_kept(self):
        process = self.start_job_until("prepared", "--duration", "60", "--join-timeout", "2.5")
        mpirun = process.pid
        self.assertTrue(cli.wait_until(lambda: len(processes.ranks_below(mpirun)) == 2, 30))
        first, second = sorted(processes.ranks_below(mpirun), key=processes.rank_of)
        self.assertTrue(cli.wait_until(lambda: cli.cpu_seconds(first) > 1, 60))
        os.kill(second, signal.SIGSTOP)
        err = process.stderr.read()
        self.assertEqual(process.wait(cli.limit(60)), 7, err)
        self.assertRegex(err, rf"nearmetal: gave up .*: rank 1 \(process {second}\) gave no sign of life")
        report = self.report()
        self.assertEqual((report["status"], report["exit_code"]), ("failed", 7))
        run, = report["arms"][0]["runs"]
        self.assertIn("gave no sign of life", run["failure"])
        self.assertGreater(len(run["ranks"][0]["step_seconds"]), 0)
        self.assertEqual(self.call("validate", "report.json").returncode, 0)

    @cli.failed_jobs_end_at_once
    def test_a_report_that_cannot_be_written_fails_the_job(self):
        process = self.job((2, ["--steps", "1", "--output", "missing/report.json"]))
        self.assertEqual(process.returncode, 9, process.err)

    def test_a_rank_that_is_killed_ends_the_job(self):
        process = self.start_job_until("prepared", "--duration", "600")
        ranks = processes.ranks_below(process.pid)
        trained = [cli.cpu_seconds(rank) + 0.3 for rank in ranks]
        self.assertTrue(cli.wait_until(lambda: all(
            cli.cpu_seconds(rank) > enough for rank, enough in zip(ranks, trained)), 60))
        children = subprocess.run(["pgrep", "-P", str(process.pid)], capture_output=True,
                                  text=True, check=True).stdout.split()
        os.kill(int(children[-1]), signal.SIGKILL)
        start = time.monotonic()
        process.communicate(timeout=cli.limit(60))
        self.assertLess(time.monotonic() - start, cli.limit(15))
        self.assertNotEqual(process.returncode, 0)
        self.assertTrue(cli.wait_until(
            lambda: not any(os.path.exists(f"/proc/{child}/exe") for child in children), 5),
            "no process is left")

    def test_a_stop_that_other_ranks_do_not_answer_keeps_what_rank_0_measured(self):
        """As where a step takes longer than a launcher lets its ranks live that it was told to end."""
        process = self.start_job_until("prepared", "--duration", "600", "--warmup", "2", "--json")
        first, other = sorted(processes.ranks_below(process.pid), key=processes.rank_of)
        enough = cli.cpu_seconds(first) + 0.7  # for some steps
        self.assertTrue(cli.wait_until(lambda: cli.cpu_seconds(first) >= enough, 60))
        os.kill(other, signal.SIGSTOP)
        os.kill(first, signal.SIGTERM)
        cli.wait_until(lambda: os.path.exists(self.path("report.json")), 30)
        report = self.report()
        self.assertEqual((report["status"], report["exit_code"]), ("partial", 143))
        run, = report["arms"][0]["runs"]
        self.assertEqual((run["world_size"], len(run["ranks"])), (2, 1))
        self.assertIn("known of rank 0 alone", run["failure"])
        self.assertGreater(len(run["ranks"][0]["step_seconds"]), 0)
        self.assertEqual(self.call("validate", "report.json").returncode, 0)
        os.kill(other, signal.SIGCONT)
        out, _ = process.communicate(timeout=cli.limit(60))
        self.assertEqual(json.loads(out), self.report(), "one alone on standard output")
        run, = self.report()["arms"][0]["runs"]
        self.assertEqual(len(run["ranks"]), 2, "of all ranks, once they answer")

    def test_a_stop_ends_the_measuring_of_cuts(self):
        process = self.start_job_until("nearmetal: device", "--pipeline", "2", "--micro-batches", "2",
                                       "--model", "vgg16", "--image-size", "64")
        for rank in processes.ranks_below(process.pid):
            os.kill(rank, signal.SIGTERM)
        err = process.stderr.read()
        self.assertEqual(process.wait(cli.limit(60)), 143, err)
        self.assertNotIn("cut behind", err)
        report = self.report()
        self.assertEqual((report["status"], report["exit_code"]), ("partial", 143))
        run, = report["arms"][0]["runs"]
        self.assertEqual([rank["step_seconds"] for rank in run["ranks"]], [[], []])
        self.assertEqual(self.call("validate", "report.json").returncode, 0)

    def test_a_stop_that_reaches_ranks_one_after_another_ends_verifying(self):
        process = self.start_job_until("verifying", "--model", "resnet18", "--image-size", "64",
                                       "--batch", "16", "--steps", "2", "--warmup", "1", "--verify")
        first, second = processes.ranks_below(process.pid)
        os.kill(first, signal.SIGTERM)
        computed = cli.cpu_seconds(second)
        cli.wait_until(lambda: not processes.alive(second)
                       or cli.cpu_seconds(second) > computed + 0.1, 30)  # more than a step
        with contextlib.suppress(ProcessLookupError):  # the first tells it, too
            os.kill(second, signal.SIGTERM)
        process.communicate(timeout=cli.limit(30))
        report = self.report()
        self.assertEqual((report["status"], report["exit_code"]), ("partial", 143))
        run, = report["arms"][0]["runs"]
        self.assertEqual(len(run["ranks"]), 2)
        self.assertIn("--verify", run["failure"])


if __name__ == "__main__":
    cli.main()
