"""Every command that README.md and the pages of docs show for a build folder, run as written: those of
seconds, or with --slow the others.

Those of the second kind set up, build and train: they run in a copy of the sources. Of commands that need an
installed program, GPUs, hosts or a cluster the options are checked. So are links.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

SLOW = "--slow" in sys.argv
if SLOW:
    sys.argv.remove("--slow")

import cli  # noqa: E402, reads the arguments

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("docs/**/*.md"))]

# Others need an installed program, GPUs, hosts or a cluster.
RUN_HERE = ("build/nearmetal ", "./scripts/quickstart.sh", "cmake -", "scripts/bundle.sh",
            "scripts/compare_with_torch.py")

# Commands that set up, build, or train at full size.
SLOW_COMMANDS = ("./scripts/quickstart.sh", "cmake ", "scripts/bundle.sh")
SLOW_LINES = ("build/nearmetal run", "build/nearmetal sweep")
# Run with a smaller network, and with --slow as shown: ranks that exchange 45 MB a step keep all cores busy.
SWEEPS = "build/nearmetal sweep "
# Exit codes that judge what was run here, not whether it ran.
VERDICTS = {"build/nearmetal gate": (0, 1, 3)}


def shown_commands():
    """The commands in the blocks of shell, README's first: each once, without remarks, continued lines
    as one."""
    commands = {}
    for page in [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md"))]:
        for block in page.read_text(encoding="utf-8").split("```sh\n")[1:]:
            for line in block.split("```")[0].replace("\\\n", " ").splitlines():
                command = " ".join(line.split(" #")[0].split())
                if command.startswith(RUN_HERE):
                    commands[command] = None
    return list(commands)


def shown_options():
    """The options of each call of nearmetal in blocks of shell, by the words of its command, such as
    ("baseline", "add")."""
    options = {}
    for page in [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md"))]:
        for block in page.read_text(encoding="utf-8").split("```sh\n")[1:]:
            for line in block.split("```")[0].replace("\\\n", " ").splitlines():
                for call in re.split(r"[|;&>]+", line.split(" #")[0]):
                    words = call.split(" -- ")[0].split()
                    starts = [i for i, word in enumerate(words) if word in ("nearmetal", "build/nearmetal")]
                    words = words[starts[0] + 1:] if starts else []
                    if not words or words[0].startswith("-"):
                        continue
                    command = tuple(words[:2] if words[0] in ("baseline", "import", "reference") else words[:1])
                    named = {word.split("=")[0] for word in words if word.startswith("--")}
                    options.setdefault(command, set()).update(named)
    return options


def anchors(page):
    """The anchors of a page's headings, as GitHub makes them."""
    prose = re.sub(r"(?ms)^```.*?^```", "", page.read_text(encoding="utf-8"))
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")
            for heading in re.findall(r"(?m)^#+ (.+)$", prose)}


def is_slow(command):
    return command.startswith(SLOW_COMMANDS) or command in SLOW_LINES


def chosen(commands):
    """Those to be run here, in the form in which they are."""
    if SLOW:
        return [c for c in commands if is_slow(c) or c.startswith(SWEEPS)]
    return [c.replace("resnet18", "resnet20") if c.startswith(SWEEPS) else c for c in commands if not is_slow(c)]


class Readme(cli.CliTest):
    def test_links_lead_somewhere(self):
        for page in PAGES:
            for link in re.findall(r"\]\(([^): ]+)\)", page.read_text(encoding="utf-8")):
                name, _, anchor = link.partition("#")
                target = page.parent / name if name else page
                self.assertTrue(target.exists(), f"{page}: {link}")
                if anchor:
                    self.assertIn(anchor, anchors(target), f"{page}: {link}")

    def test_options_of_every_command_exist(self):
        shown = shown_options()
        self.assertGreater(len(shown), 10)
        for command, options in shown.items():
            process = self.call("help", *command)
            self.assertEqual(process.returncode, 0, f"{command}: {process.err}")
            for option in options:
                self.assertRegex(process.out, rf"(?m)^ +{re.escape(option)}( |$)", f"{command}")

    def fill_folder(self):
        """With what the commands read: the sources, or a build folder, reports and results."""
        if SLOW:
            ignored = shutil.ignore_patterns("build", "build-*", ".git", ".cache")
            shutil.copytree(ROOT, self.folder, ignore=ignored, dirs_exist_ok=True)
            return
        os.mkdir(self.path("build"))
        os.symlink(cli.EXECUTABLE, self.path("build/nearmetal"))
        for folder in ("scripts", "layouts"):
            os.symlink(ROOT / folder, self.path(folder))
        shutil.copy(ROOT / "tests" / "data" / "published" / "mlperf_result.txt",
                    self.path("result_0.txt"))
        for number in ("", "2", "3"):
            for name, copies in (("old", ("metal", "run")), ("new", ("vm", "pod"))):
                report = f"{name}{number}.json"
                self.assertEqual(self.tiny("--steps", "3", "--digest", "--output", report).returncode, 0)
                for copy in copies:
                    shutil.copy(self.path(report), self.path(f"{copy}{number}.json"))
            node = self.report(f"old{number}.json")
            node["environments"][0]["machine_id"] = "0" * 63 + (number or "1")
            node["environments"][0]["unknown"].pop("machine_id", None)
            self.write(f"node{number}.json", json.dumps(node))

    def test_the_commands_work(self):
        self.fill_folder()
        commands = chosen(shown_commands())
        self.assertGreater(len(commands), 4)
        environment = {**cli.clean_environment(), "HOME": self.folder}
        for command in commands:
            with self.subTest(command=command):
                process = subprocess.run(["bash", "-c", command], cwd=self.folder, env=environment,
                                         capture_output=True, text=True, check=False,
                                         timeout=cli.limit(3600 if SLOW else 200))
                if "PyTorch and torchvision are needed" in process.stderr:
                    continue  # torch_test tells that it is skipped where there is none
                allowed = next((codes for start, codes in VERDICTS.items()
                                if command.startswith(start)), (0,))
                self.assertIn(process.returncode, allowed, process.stdout + process.stderr)


if __name__ == "__main__":
    cli.main()
