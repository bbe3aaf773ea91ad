"""No command opens or starts what data names or what lies where it is called, by its system calls.

Of the current folder a command takes its arguments, the values of its options, baselines/ and references/.
"""

import hashlib
import json
import os
import re
import shutil
import subprocess
import unittest

import cli

EVIL = "#!/bin/sh\ntouch {}\nexit 0\n"
# Programs that commands start, and names that might stand for a file.
PROGRAMS = ["cat", "env", "mpirun", "nearmetal", "nvidia-cuda-mps-control", "nvidia-smi",
            "orted", "prted", "rm", "run", "seq", "sh", "sleep", "ssh", "systemd-detect-virt"]
LIBRARIES = ["libcuda.so.1", "libhwloc.so.15", "libnearmetal_cpu.so", "libnearmetal_cuda.so",
             "libnearmetal_micro.so", "libnearmetal_mpi.so", "libnvidia-ml.so.1", "libgomp.so.1",
             "libyaml-cpp.so.0.7", "libstdc++.so.6", "libc.so.6"]
DATA = ["1x1x1", "1x1x2", "auto", "baselines.json", "default", "off", "plain", "plans.json",
        "main", "main.json", "ucx.conf", "openmpi-mca-params.conf", ".nearmetal",
        "report", "layout", "nccl.conf", "localhost", "cuda", "cpu", "json", "bash"]
# What a command may make here, and read again.
OWN_FILE = re.compile(r"\.?(rerun-1-of-|nearmetal-)?[\w.-]*(report\.json|\.jsonl|\.part|\.tmp).*")
CALL = re.compile(r'^\d+ +(?P<name>execve|execveat|open|openat|openat2)\('
                  r'(?:(?P<folder>AT_FDCWD|\d+)(?:<(?P<at>[^>]*)>)?, )?"(?P<path>[^"]*)"')
QUICK = ["--device", "cpu", *cli.TINY_WORK]
REPORT = "hostile.json"
# Arguments of commands; one that is not here is called without any, and with a report.
ARGUMENTS = {
    "run": [[*QUICK, "--steps", "3", "--output", "own.report.json", "--force"]],
    "export": [[*QUICK[:6], "--steps", "1", "--output", "own.part", "--force"]],
    "compare": [[REPORT, "other.json"], [REPORT, "other.json", "--html", "own.part", "--force"]],
    "gate": [["main", REPORT, "--rerun", "1"], ["main", "./nowhere"]],
    "baseline add": [["main", REPORT, "--skip-existing"]],
    "baseline remove": [["main", "none.json"]],
    "baseline show": [["main"]],
    "rerun": [[REPORT, "--runs", "1"], [REPORT, "--hosts", "plain"]],
    "report": [[REPORT, "--format", "html", "--output", "own.part", "--force"], ["./main"]],
    "import mlperf": [[REPORT]],
    "import tf_cnn_benchmarks": [[REPORT]],
    "import nccl-tests": [[REPORT]],
    "import pairs": [[REPORT]],
    "plan": [["1x1x1"], ["dell_vms"], ["plain"], ["1x1x1", "--hosts", "plain"],
             ["bert_fractions", "--hosts", "a:1"]],
    "sweep": [["1x1x1", *cli.TINY_WORK, "--hosts", "localhost:0", "--steps", "3", "--repeats", "1",
               "--output", "own.report.json", "--force"],
              ["plain", "--output", "own.report.json"],
              ["1x1x1", "--resume", "hostile.jsonl", "--output", "own.report.json", "--force"]],
    "survey": [["1x1x2", *cli.TINY_WORK, "--hosts", "localhost:0", "--steps", "3", "--repeats", "1",
                "--output", "own.report.json", "--force"],
               ["plain", "--output", "own.report.json"]],
    "micro": [["--device", "cpu", "--list"]],
    "stress": [["plain", "--device", "cpu"]],
    "doctor": [[], ["plain"]],
    "validate": [[REPORT]],
    "schema": [["report"]],
    "generate": [["bash"], ["layout"]],
    "help": [["run"]],
    "tf_cnn_benchmarks": [["--model=resnet50", "--device=cpu", "--print"]],
}


STRACE = shutil.which("strace")


def without_strace():
    """Why system calls cannot be seen here, or nothing."""
    if STRACE is None:
        return "there is no strace"
    tried = subprocess.run([STRACE, "-f", "--seccomp-bpf", "-o", "/dev/null", "true"], check=False,
                           capture_output=True, text=True)
    return f"strace cannot trace: {tried.stderr}" if tried.returncode else ""


def with_paths(value, path):
    """The document with that path in place of all paths."""
    if isinstance(value, dict):
        return {key: with_paths(part, path) for key, part in value.items()}
    if isinstance(value, list):
        return [with_paths(part, path) for part in value]
    return path if isinstance(value, str) and value.startswith("/") else value


@unittest.skipIf(without_strace(), without_strace())
class Trust(cli.CliTest):
    def setUp(self):
        super().setUp()
        self.traps = os.path.join(self.folder, "traps")
        self.here = os.path.join(self.folder, "here")
        os.makedirs(self.here)
        shipped = os.listdir(os.path.join(os.path.dirname(__file__), "../../layouts"))
        layout = json.dumps({"hosts": [{"name": "localhost", "gpus": 0}], "layouts": [
            {"shape": "1x1x1", "executable": os.path.join(self.traps, "nearmetal")}]})
        for name in PROGRAMS + LIBRARIES:
            for folder in (self.here, self.traps, os.path.join(self.here, "relative")):
                self.write_program(os.path.join(folder, name), EVIL.format(self.path("PWNED")))
        for name in DATA + shipped + [name.removesuffix(".json") for name in shipped]:
            self.write(os.path.join("here", name), layout)
        self.environment = {**cli.clean_environment(), "PATH": f".:{os.environ['PATH']}::relative:"}
        self.write_reports()

    def write_reports(self):
        """Reports and a journal that name a program with its hash, and paths of traps."""
        made = self.tiny("--steps", "3", "--output", "made.json")
        self.assertEqual(made.returncode, 0, made.err)
        report = self.report("made.json")
        trap = os.path.join(self.traps, "nearmetal")
        evil = EVIL.format(self.path("PWNED")).encode()
        for name, path in (("hostile.json", trap), ("other.json", "nearmetal")):
            changed = with_paths(report, path)
            for setting in ("output", "plans", "plan_cache", "host_facts"):
                changed["invocation"]["config"][setting]["value"] = path
            changed["arms"][0]["runs"][0]["started_at"] = f"2026-01-01T12:00:0{len(path) % 10}Z"
            changed["arms"][0]["executable"] = {"path": path, "modules_sha256": {},
                                                "sha256": hashlib.sha256(evil).hexdigest()}
            self.write("here/" + name, json.dumps(changed))
            checked = self.call("validate", "here/" + name)
            self.assertEqual(checked.returncode, 0, checked.err)
        header = {"schema": "nearmetal/journal", "schema_version": "1.3", "plan_sha256": "0" * 64,
                  "command": trap, "tool": changed["tool"],
                  "executables": [changed["arms"][0]["executable"]]}
        self.write("here/hostile.jsonl", json.dumps(header) + "\n")
        added = self.call("baseline", "add", "main", "other.json", cwd=self.here)
        self.assertEqual(added.returncode, 0, added.err)

    def commands(self):
        """All that the program lists, each with arguments."""
        names = re.findall(r"^## (.+)$", self.call("generate", "markdown").out, re.MULTILINE)
        self.assertGreater(len(names), 20)
        for name in names:
            for arguments in ARGUMENTS.get(name, [[], [REPORT]]):
                yield [*name.split(), *arguments]

    def calls_of(self, command):
        log = self.path("calls")
        traced = subprocess.run(
            [STRACE, "-f", "-y", "--seccomp-bpf", "-s", "4096", "-o", log, "-e",
             "trace=execve,execveat,open,openat,openat2", cli.EXECUTABLE, *command],
            check=False, cwd=self.here, env=self.environment, capture_output=True, text=True,
            stdin=subprocess.DEVNULL, timeout=cli.limit(60))
        with open(log, encoding="utf-8", errors="replace") as file:
            calls = [call for call in map(CALL.match, file) if call]
        self.assertIn(("execve", cli.EXECUTABLE), [(call["name"], call["path"]) for call in calls],
                      traced.stderr)
        return calls

    def is_allowed(self, call, command):
        if call["name"] in ("execve", "execveat") and not call["path"].startswith("/"):
            return False
        path = os.path.normpath(os.path.join(call["at"] or self.here, call["path"]))
        if path.startswith(self.traps):
            return False
        if os.path.commonpath([path, self.here]) != self.here or path == self.here:
            return True
        name = os.path.relpath(path, self.here)
        given = {os.path.normpath(word) for word in command if "." in word}  # others are names
        is_input = name in given or name.startswith(("baselines", "references")) or OWN_FILE.fullmatch(name)
        return call["name"].startswith("open") and bool(is_input)

    def assert_takes_what_it_is_given(self, command):
        with self.subTest(command=command):
            wrong = {call[0] for call in self.calls_of(command)
                     if not self.is_allowed(call, command)}
            self.assertEqual(wrong, set())

    def test_no_command_takes_what_it_was_not_given(self):
        for command in self.commands():
            self.assert_takes_what_it_is_given(command)
        self.environment["PATH"] = "."  # nothing is left of it
        self.assert_takes_what_it_is_given(["run", *QUICK, "--steps", "3", "--repeats", "1",
                                            "--output", "own.report.json", "--force"])
        self.assertFalse(os.path.exists(self.path("PWNED")))


if __name__ == "__main__":
    cli.main()
