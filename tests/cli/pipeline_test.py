"""Stages of a pipeline under a real mpirun: what they report, show and refuse."""

import os
import subprocess

import cli


def bubble_with_transfers(stages):
    """Of two stages, from their times, marks and boundary: a simulation that is not the program's."""
    tasks = []
    for stage in stages:
        lengths = {(m["pass"], m["micro_batch"]): m["end_seconds"] - m["begin_seconds"]
                   for m in stage["marks"]}  # in the order of the stage
        sums = {way: sum(v for (p, _), v in lengths.items() if p == way)
                for way in ("forward", "backward")}
        tasks.append([(key, v * stage["seconds"][key[0]] / sums[key[0]])
                      for key, v in lengths.items()])
    travel = min(stage["boundary_seconds"] for stage in stages)
    sender = {"forward": 0, "backward": 1}  # of what travels
    there = {(0, "forward", i): 0 for i in range(len(tasks[0]) // 2)}
    free, last, left = [0, 0], [0, 0], [list(t) for t in tasks]
    while any(left):
        for stage in (0, 1):
            while left[stage] and (stage, *left[stage][0][0]) in there:
                (way, number), length = left[stage].pop(0)
                free[stage] = max(free[stage], there[stage, way, number]) + length
                if stage == sender[way]:
                    last[stage] = max(free[stage], last[stage]) + travel
                    there[1 - stage, way, number] = last[stage]
                elif way == "forward":
                    there[stage, "backward", number] = free[stage]
    return 1 - sum(length for t in tasks for _, length in t) / (2 * max(free))


class Pipeline(cli.CliTest):
    def job(self, *contexts):
        groups = [(ranks, ["--steps", "3", "--warmup", "1", *arguments])
                  for ranks, arguments in contexts]
        return subprocess.run(cli.mpirun(*groups), cwd=self.folder, env=cli.clean_environment(),
                              text=True, stdin=subprocess.DEVNULL, capture_output=True,
                              check=False, timeout=cli.limit(100))

    def run_of(self, *contexts):
        process = self.job(*contexts)
        self.assertEqual(process.returncode, 0, process.stdout + process.stderr)
        self.assertEqual(self.call("validate", "report.json").returncode, 0)
        self.out = process.stdout
        report = self.report()
        self.config = {name: setting["value"]
                       for name, setting in report["invocation"]["config"].items()}
        return report["arms"][0]["runs"][0]

    def test_two_jobs_at_once_add_up(self):
        self.assertEqual(self.call(
            "sweep", "2*(1x1x2)", "--hosts", "localhost:0", *cli.TINY_WORK, "--pipeline", "2",
            "--cuts", "layer2", "--steps", "50", "--repeats", "1", "--output", "report.json").returncode, 0)
        run, = self.report()["arms"][0]["runs"]
        jobs = [job["throughput_images_per_second"] for job in run["jobs"]]
        self.assertAlmostEqual(run["throughput_images_per_second"], sum(jobs), delta=1)
        for job, speed, rank in zip(run["jobs"], jobs, run["ranks"][::2]):
            steps = rank["step_seconds"][job["first_step"]:]
            self.assertLess(speed, 1.5 * 2 * len(steps) / sum(steps), "of both its stages together")

    def test_replicas_of_a_pipeline(self):
        run = self.run_of((4, ["--pipeline", "2", "--micro-batches", "3", "--schedule", "gpipe",
                               "--cuts", "layer2", "--verify", "--output", "report.json"]))
        self.assertEqual(self.config["cuts"], "layer2.2", "named in one way")
        self.assertEqual(run["window"]["images"], 3 * 2 * 3 * 2, "of two replicas")
        self.assertEqual((run["proof"]["replicas_identical"], run["proof"]["sums_exact"]),
                         (True, True))
        self.assertTrue(run["proof"]["verify"]["passed"])
        stages = [rank["stage"] for rank in run["ranks"]]
        self.assertEqual([(stage["stage"], stage["replica"]) for stage in stages],
                         [(0, 0), (1, 0), (0, 1), (1, 1)])
        self.assertEqual(stages[0]["last_node"], "layer2.2.relu")
        self.assertEqual(stages[0]["parameters"] + stages[1]["parameters"], run["parameters"])
        self.assertTrue(all(stage["boundary_exact"] for stage in stages))
        for rank, stage in zip(run["ranks"], stages):
            self.assertEqual(stage["bytes_gpipe"], rank["device_bytes"], "what ran")
            self.assertGreater(stage["bytes_gpipe"], stage["bytes_1f1b"])
            self.assertEqual([(mark["pass"], mark["micro_batch"]) for mark in stage["marks"]],
                             [(each, i) for each in ("forward", "backward") for i in range(3)])
        losses = [rank["loss"] for rank in run["ranks"]]
        self.assertEqual(losses[0], losses[1], "the loss is that of the whole network")
        self.assertNotEqual(losses[0], losses[2], "own images of each replica")
        for said in ("pipeline of 2 stages by gpipe, 3 micro-batches", "gradients averaged",
                     "input to layer2.2.relu", "of equal stages"):
            self.assertIn(said, self.out)

    def test_the_bubble_is_measured_simulated_and_ideal(self):
        run = self.run_of((2, ["--pipeline", "2", "--micro-batches", "4", "--output",
                               "report.json"]))
        self.assertIsNotNone(self.config["cuts"], "balanced by measured times")
        self.assertIsNone(run["communication"])
        bubble = run["pipeline"]["bubble"]
        seconds = [rank["stage"]["seconds"] for rank in run["ranks"]]
        busy = sum(stage["forward"] + stage["backward"] for stage in seconds)
        self.assertAlmostEqual(bubble["measured"], 1 - busy / sum(s["span"] for s in seconds))
        self.assertAlmostEqual(bubble["ideal"], 0.2)
        self.assertGreaterEqual(bubble["simulated"], 0.2 - 1e-9)
        self.assertAlmostEqual(bubble["simulated_with_transfers"],
                               bubble_with_transfers([rank["stage"] for rank in run["ranks"]]))
        for stage in seconds:
            self.assertGreaterEqual(stage["span"], stage["forward"] + stage["backward"] +
                                    stage["waiting"] + stage["sending"])
        self.assertIn("Stages of", self.call("report", "report.json", "--format", "markdown").out)
        page = self.call("report", "report.json", "--format", "html", "--no-charts").out
        self.assertIn("One step of the stages", page)

    def test_the_same_as_one_device_with_accumulation(self):
        losses = []
        for ranks, arguments in ((1, ["--accumulate", "3"]),
                                 (2, ["--pipeline", "2", "--micro-batches", "3"]),
                                 (1, ["--micro-batches", "3"])):
            run = self.run_of((ranks, [*arguments, "--force", "--output", "report.json"]))
            losses.append(run["ranks"][0]["loss"][:4])
        self.assertEqual(losses[0], losses[1])
        self.assertEqual(losses[0], losses[2])

    def test_one_micro_batch_is_model_parallel(self):
        self.run_of((2, ["--pipeline", "2", "--cuts", "layer2", "--output", "report.json"]))
        self.assertIn("model parallel over 2 stages", self.out)

    def test_other_parallelism_is_not_compared_unless_allowed(self):
        self.run_of((2, ["--pipeline", "2", "--cuts", "layer2", "--output", "report.json"]))
        os.rename(os.path.join(self.folder, "report.json"),
                  os.path.join(self.folder, "pipeline.json"))
        self.run_of((2, ["--output", "report.json"]))
        process = self.call("compare", "report.json", "pipeline.json")
        self.assertEqual(process.returncode, 4, process.out)
        self.assertIn("pipeline", process.out + process.err)

    def test_what_does_not_go_together_is_refused(self):
        for arguments, why in (
                (["--pipeline", "2"], "multiple of 2, and this job has 1 rank"),
                (["--pipeline", "2", "--cuts", "layer9"], "cannot be cut behind 'layer9'"),
                (["--pipeline", "2", "--cuts", "layer1,layer2"], "2 stages need 1 cut,"),
                (["--pipeline", "2", "--inference"], "--pipeline and --micro-batches train"),
                (["--pipeline", "2", "--accumulate", "2"], "give one of them"),
                (["--pipeline", "2", "--profile"], "need both stages"),
                (["--pipeline", "2", "--attribute"], "leave it out with --pipeline"),
                (["--pipeline", "2", "--update", "independent"], "one network on all ranks"),
                (["--schedule", "gpipe"], "--schedule is the order of stages"),
                (["--cuts", "layer2"], "--cuts makes stages")):
            process = self.tiny(*arguments)
            self.assertEqual(process.returncode, 2, process.err)
            self.assertIn(why, process.err)
        process = self.job((3, ["--pipeline", "2"]))
        self.assertEqual(process.returncode, 2, process.stderr)
        self.assertIn("multiple of 2, and this job has 3 ranks", process.stderr)
        process = self.job((1, ["--pipeline", "2", "--cuts", "layer1"]),
                           (1, ["--pipeline", "2", "--cuts", "layer2"]))
        self.assertEqual(process.returncode, 2, process.stderr)
        process = self.call("export", "--pipeline", "2", "--device", "cpu")
        self.assertEqual(process.returncode, 2)
        self.assertIn("as one device trains it", process.err)

    def test_a_plan_shows_stage_and_neighbours_of_each_rank(self):
        process = self.call("plan", "1x1x4", "--hosts", "a:0", "--pipeline", "2")
        self.assertEqual(process.returncode, 0, process.err)
        self.assertIn("1 of 2, replica 1", process.out)
        self.assertIn("rank 3", process.out)
        process = self.call("plan", "1x1x3", "--hosts", "a:0", "--pipeline", "2")
        self.assertEqual(process.returncode, 2)
        self.assertIn("multiple of 2, and this job has 3 ranks", process.err)


if __name__ == "__main__":
    cli.main()
