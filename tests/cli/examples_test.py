"""The examples of the help that take no device, run as printed by a shell."""

import os
import re
import shutil
import subprocess

import cli
from comparing import CompareTest

# Commands run up to where they send a script on; those of a cluster or another shell not at all.
SENT_ON = re.compile(r" \| (?:sbatch|kubectl apply -f -|man -l -)")
LEFT_OUT = ("kubectl ", "nearmetal generate zsh", "nearmetal generate fish")
VERDICTS = (0, 1, 3)  # exit codes that judge what was made up, not whether it ran


def examples_of(text):
    """Commands of the help, without what is said of them and with continued lines as one."""
    block = re.search(r"Examples:\n((?:  .*\n)+)", text)[1]
    lines = re.sub(r" \\\n *", " ", block).splitlines()
    commands = [line.strip().split("  ")[0] for line in lines if not line.startswith("      ")]
    return [SENT_ON.split(command)[0] for command in commands if not command.startswith(LEFT_OUT)]


class Examples(CompareTest):
    def setUp(self):
        super().setUp()
        for folder in ("bin", "old", "new"):
            os.mkdir(self.path(folder))
        os.symlink(cli.EXECUTABLE, self.path("bin/nearmetal"))
        names = [f"{name}{i}" for name in ("old", "new", "run", "metal", "vm", "pod", "old/", "new/")
                 for i in (1, 2, 3)]
        names += ["old", "new", "a", "b", "c", "a.report"]
        for minute, name in enumerate(names):
            self.made(f"{name}.json", 1000 + minute, minute)

        def on_node(report, _run):
            report["environments"][0]["host_name"] = f"node{len(os.listdir(self.folder))}"
        for i in (1, 2, 3):
            self.made(f"node{i}.json", 1000 + i, 90 + i, on_node)

        def two_arms(report, _run):
            report["arms"] = [{**report["arms"][0], "name": name} for name in ("old", "new")]
        self.made("sweep.json", 1000, 80, two_arms)

    def test_they_work(self):
        environment = {**cli.clean_environment(), "HOME": self.folder,
                       "GITHUB_STEP_SUMMARY": self.path("summary"),
                       "PATH": self.path("bin") + ":" + os.environ["PATH"]}
        for name in ("reference", "compare", "gate", "baseline", "report", "plan", "validate", "schema",
                     "generate", "models"):
            commands = examples_of(self.call(name, "--help").out)
            self.assertGreater(len(commands), 0, name)
            for command in commands:
                with self.subTest(command=command):
                    process = subprocess.run(
                        ["bash", "-c", command], cwd=self.folder, env=environment, text=True,
                        capture_output=True, check=False, timeout=cli.limit(60))
                    allowed = VERDICTS if command.startswith("nearmetal gate") else (0,)
                    self.assertIn(process.returncode, allowed, process.stdout + process.stderr)
            shutil.rmtree(self.path("baselines"), ignore_errors=True)


if __name__ == "__main__":
    cli.main()
