"""What commands do where there is no memory, thread or process left (tests/fakes/exhausted).

    tests/cli/exhausted_test.py PROGRAM LIBRARY [--slow]    slow: a hundred places in every command
"""

import concurrent.futures
import json
import os
import re
import sys
import unittest

import cli

LIBRARY = os.path.abspath(sys.argv.pop(2))
SLOW = "--slow" in sys.argv
if SLOW:
    sys.argv.remove("--slow")
DATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data")
PUBLISHED = os.path.join(DATA, "published")
CODES = set(range(11))
# Names of exceptions and what the C++ library says in them.
RAW = re.compile(r"std::|bad_|_M_|what\(\)|terminate|basic_string|__|filesystem error")
RUN = [*cli.TINY, "--warmup", "1", "--steps", "2", "--force", "--output", "new.json"]
# Whose output is the same each time, and those whose is not.
SAME = {
    "version": ["--version"],
    "help": ["help", "run"],
    "models": ["models"],
    "text": ["report", "a.json", "--format", "text"],
    "markdown": ["report", "a.json", "b.json"],
    "html": ["report", "a.json", "--format", "html", "--no-charts"],
    "csv": ["report", "a.json", "--format", "csv", "--output", "new.csv", "--force"],
    "junit": ["report", "a.json", "--format", "junit"],
    "prometheus": ["report", "a.json", "--format", "prometheus"],
    "google-benchmark": ["report", "a.json", "--format", "google-benchmark"],
    "github": ["report", "a.json", "--format", "github"],
    "plots": ["report", "a.json", "--plot-data", "plots", "--force"],
    "compare": ["compare", "a.json", "b.json"],
    "compare --json": ["compare", "a.json", "b.json", "--json", "--html", "new.html", "--force",
                       "--no-charts"],
    "gate": ["gate", "main", "a.json", "--junit", "new.xml", "--force"],
    "baseline": ["baseline", "show", "main"],
    "validate": ["validate", "a.json", "b.json"],
    "import mlperf": ["import", "mlperf", os.path.join(PUBLISHED, "mlperf_result.txt"), "--force",
                      "--output", "new.json"],
    "import nccl-tests": ["import", "nccl-tests", os.path.join(PUBLISHED, "nccl_tests.log"),
                          "--force", "--output", "new.json"],
    "import tf": ["import", "tf_cnn_benchmarks", "--force", "--output", "new.json",
                  os.path.join(PUBLISHED, "tf_cnn_benchmarks.log")],
    "bash": ["generate", "bash"],
    "man": ["generate", "man"],
    "schema": ["schema", "layout"],
    "plan": ["plan", "1x1x2", "2x2x1", "--hosts", "a:2,b:2"],
    "plan sh": ["plan", "1x1x2", "--hosts", "a:2", "--format", "sh", "--output", "new.sh", "--force"],
    "plan mpijob": ["plan", "1x1x2", "--hosts", "1*2", "--format", "mpijob", "--image", "one"],
    "plan grid": ["plan", "1x1x2", "--hosts", "a:2", "--grid", "batch=8,16", "--format", "json"],
    "tf help": ["tf_cnn_benchmarks", "--help"],
    "tf": ["tf_cnn_benchmarks", "--model=resnet50", "--batch_size=8", "--print"],
    "refused": ["run", "--bacth", "2"],
    "unreadable": ["report", "none.json"],
    "export": ["export", "--device", "cpu", "--steps", "1", "--batch", "2", "--threads", "1", "--model",
               "resnet20", "--image-size", "32", "--force",
               "--output", "new.safetensors"],
}
OTHER = {
    "doctor": ["doctor"],
    "baseline add": ["baseline", "add", "again", "a.json", "--skip-existing"],
    "list": ["micro", "--device", "cpu", "--list"],
    "micro": ["micro", "copy/", "--device", "cpu", "--seconds", "0.001", "--repetitions", "1"],
    "stress": ["stress", "copy", "--device", "cpu", "--seconds", "0.01", "--json"],
    "run": RUN,
    "attribute": [*RUN, "--attribute", "--verify"],
    "repeats": [*RUN, "--repeats", "2"],
}

USUAL_CODES = {"gate": 3, "refused": 2, "unreadable": 5}


class Exhausted(cli.CliTest):
    def without(self, arguments, **options):
        variables = {name: str(value) for name, value in options.pop("variables").items()}
        environment = {**cli.clean_environment(), "LD_PRELOAD": LIBRARY, **variables}
        return self.call(*arguments, env=environment, **options)


class Memory(Exhausted):
    def setUp(self):
        super().setUp()
        self.trials = 0
        for name in ("a.json", "b.json"):
            self.assertEqual(self.tiny("--steps", "2", "--output", name).returncode, 0)
        self.assertEqual(self.call("baseline", "add", "main", "b.json").returncode, 0)

    def try_out(self, arguments, folder, **variables):
        """The process, and the files that it made."""
        os.makedirs(folder, exist_ok=True)
        for name in ("a.json", "b.json", "baselines"):
            if not os.path.lexists(os.path.join(folder, name)):
                os.symlink(self.path(name), os.path.join(folder, name))
        for name in self.made_in(folder):
            os.remove(os.path.join(folder, name))
        process = self.without(arguments, cwd=folder, variables=variables)
        process.made = {name: self.content(folder, name) for name in self.made_in(folder)}
        return process

    @staticmethod
    def made_in(folder):
        return [os.path.relpath(os.path.join(place, name), folder)
                for place, _, names in os.walk(folder) for name in names
                if not os.path.islink(os.path.join(place, name)) and name != "count"]

    @staticmethod
    def content(folder, name):
        with open(os.path.join(folder, name), "rb") as file:
            return file.read()

    def calls_of(self, arguments):
        """How often a command asks for memory, and what it does with enough of it."""
        count = self.path("count")
        process = self.try_out(arguments, self.path("0"), NM_COUNT_TO=count)
        with open(count, encoding="utf-8") as file:
            calls = int(file.read().split()[-1])
        os.remove(count)
        return calls, process

    def harm_of(self, process, usual, same):
        """Why what a process did is wrong; empty: it is not."""
        if process.returncode not in CODES:
            return f"exit {process.returncode}"
        if RAW.search(process.err):
            return "raw text"
        for name, content in process.made.items():
            whole = content == usual.made.get(name) if same else self.is_whole(name, content)
            if not whole:
                return f"half of {name}"
        if process.returncode == usual.returncode and same:
            return "" if process.out == usual.out else "another output"
        if process.returncode == usual.returncode:
            return ""
        said = [line for line in process.err.splitlines() if "not enough memory" in line]
        if len(said) == 1 or (said and "run 1 of 2" in process.err):  # each run may say it
            return ""
        return f"exit {process.returncode} for another reason"

    @staticmethod
    def is_whole(name, content):
        documents = content.splitlines() if name.endswith(".jsonl") else [content]
        try:
            return all(json.loads(document) for document in documents)
        except ValueError:
            return False

    def fail_at_points(self, name, arguments, points, same, read_calls):
        calls, usual = self.calls_of(arguments)
        self.assertEqual(usual.returncode, USUAL_CODES.get(name, 0), usual.err)
        begin = min(read_calls, calls - points)  # most calls read the command line, of every command
        half = max(points // 2, 1)
        places = [1 + calls * i // half for i in range(half)]
        places += [begin + 1 + (calls - begin) * i // half for i in range(points - half)]
        wrong = []
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            trials = {at: pool.submit(self.try_out, arguments, self.path(str(at)), NM_MEMORY_ENDS_AT=at,
                                      NM_COMES_BACK=at % 2) for at in places}
            for at, trial in trials.items():
                process = trial.result()
                if harm := self.harm_of(process, usual, same):
                    wrong.append(f"{name}, call {at} of {calls}{'' if at % 2 else ' and on'}: {harm}: "
                                 f"exit {process.returncode}: {process.err[-300:]!r}")
        self.trials += len(trials)
        return wrong

    def fail_all(self, commands, points):
        read_calls, _ = self.calls_of(["--none"])
        wrong = []
        for name, arguments in commands.items():
            wrong += self.fail_at_points(name, arguments, points, name in SAME, read_calls)
        print(f"{self.trials} trials, {len(wrong)} with harm")
        if wrong:
            self.fail("\n".join(wrong))

    @unittest.skipIf(SLOW, "all places are tried")
    def test_it_ends_in_a_few_places(self):
        few = ("refused", "compare", "csv")
        self.fail_all({name: SAME[name] for name in few} | {"run": RUN}, 10)

    @unittest.skipUnless(SLOW, "minutes: ctest -C slow -R exhausted")
    def test_it_ends_in_many_places(self):
        self.fail_all(SAME | OTHER, 100)


class ThreadsAndProcesses(Exhausted):
    def threads_of(self, end, *arguments):
        process = self.without([*RUN, *arguments], variables={"NM_THREADS_END_AT": end})
        if process.returncode:
            self.assertEqual(process.returncode, 6, process.err)
            said = process.err.splitlines()[-1]
            self.assertRegex(said, "^nearmetal: .*a thread cannot be started: .*ulimit -u.*pids.max$")
        return process

    @unittest.skipIf(SLOW, "every thread is tried")
    def test_no_thread_is_left(self):
        for end in range(1, 5):
            self.assertEqual(self.threads_of(end).returncode, 6)

    @unittest.skipUnless(SLOW, "half a minute")
    def test_every_thread_may_be_the_first_that_fails(self):
        attribute, end = ["--threads", "2", "--attribute"], 1
        while self.threads_of(end, *attribute).returncode:
            end += 1
        self.assertGreater(end, 4)

    @unittest.skipIf(SLOW, "once is enough")
    def test_no_process_is_left(self):
        process = self.without([*RUN, "--repeats", "2"], variables={"NM_PROCESSES_END_AT": 1})
        self.assertEqual(process.returncode, 6, process.err)
        self.assertRegex(process.err, "run failed: .* cannot be started: .*ulimit -u.*pids.max")


if __name__ == "__main__":
    cli.main()
