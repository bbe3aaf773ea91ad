"""10,000 runs of 1,000 steps, about 250 MB of JSON, are compared within 5 s and 1 GiB."""

import copy
import json
import os
import pathlib
import random
import time

import cli
import made_up

FILES, RUNS, STEPS = 100, 100, 1000
SECONDS, BYTES = 5, 1 << 30
ATTEMPTS = 3  # the machine may do other things meanwhile


class Load(cli.CliTest):
    def setUp(self):
        super().setUp()
        noise = random.Random(3)
        self.made = [self.made_run(noise) for _ in range(50)]
        for number in range(FILES):
            self.write(f"{'base' if number % 2 else 'new'}-{number}.json",
                       self.report_text(number, noise))

    def made_run(self, noise):
        """A run without its steps, and these as text, as to write each of them anew would take
        longer than what is tested."""
        made = copy.deepcopy(made_up.SOURCE["arms"][0]["runs"][0])
        mean = noise.gauss(0.1, 0.0004)
        steps = [noise.gauss(mean, 0.001) for _ in range(STEPS)]
        batch = made_up.SOURCE["invocation"]["config"]["batch"]["value"]
        made["window"].update(first_step=0, steps=STEPS)
        made["throughput_images_per_second"] = batch * STEPS / sum(steps)
        made["ranks"][0].update(step_seconds=steps, loss=[6.9] * STEPS)
        made_up.settle(made, batch)
        made["ranks"][0]["step_seconds"] = "STEPS"
        return made, json.dumps(steps)

    def report_text(self, number, noise):
        report = copy.deepcopy(made_up.SOURCE)
        chosen = noise.choices(self.made, k=RUNS)
        report["arms"][0]["runs"] = []
        for run, (made, _) in enumerate(chosen):
            second = number * RUNS + run
            started_at = (f"2026-01-01T{second // 3600:02}:{second // 60 % 60:02}:"
                          f"{second % 60:02}Z")
            report["arms"][0]["runs"].append({**made, "started_at": started_at})
        parts = json.dumps(report).split('"STEPS"')
        return "".join(part + steps for part, (_, steps) in zip(parts, [*chosen, (None, "")]))

    def test_compare(self):
        folder = pathlib.Path(self.folder)
        size = sum(path.stat().st_size for path in folder.glob("*.json"))
        self.assertGreater(size, 200e6)
        sides = [[str(path) for path in sorted(folder.glob(side))] for side in ("base*", "new*")]
        fastest = float("inf")
        for _ in range(ATTEMPTS):
            start = time.monotonic()
            process = self.start("compare", "--base", *sides[0], "--new", *sides[1],
                                 stdout=os.open(self.path("out"), os.O_CREAT | os.O_WRONLY))
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            self.assertEqual(process.returncode, 0, process.stderr.read())
            self.assertLess(usage.ru_maxrss * 1024, BYTES)
            fastest = min(fastest, time.monotonic() - start)
            print(f"{size / 1e6:.0f} MB in {fastest:.2f} s, {usage.ru_maxrss / 1024:.0f} MiB")
            if fastest < SECONDS:
                break
        self.assertLess(fastest, SECONDS)
        self.assertIn("5000|5000", pathlib.Path(self.path("out")).read_text(encoding="utf-8"))


if __name__ == "__main__":
    cli.main()
