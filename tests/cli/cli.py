"""Starts the executable for the tests of this folder; its path is the first argument."""

import atexit
import fcntl
import json
import os
import pty
import shlex
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
import time
import unittest
from unittest import mock

sys.path.append(os.path.join(os.path.dirname(__file__), "..", "limits"))
from slowdown import slowdown  # pylint: disable=wrong-import-position

EXECUTABLE = os.path.abspath(sys.argv[1])
SLOWDOWN = slowdown()

# Two mpirun of Open MPI 4 that start at once may fail over the session folder that both create.
os.environ["TMPDIR"] = tempfile.tempdir = tempfile.mkdtemp(prefix="nearmetal-cli-")
atexit.register(shutil.rmtree, tempfile.tempdir, ignore_errors=True)

# A network and images small enough for a step of some milliseconds.
TINY = ["run", "--device", "cpu", "--model", "resnet20", "--image-size", "32", "--batch", "2",
        "--threads", "1", "--plan-cache", "off"]

# The same for the ranks of a sweep.
TINY_WORK = ["--model", "resnet20", "--image-size", "32", "--classes", "10", "--batch", "2",
             "--threads", "1", "--warmup", "2"]


# For tests whose ranks fail before there is anything to lose: where one fails, Open MPI sleeps for two
# seconds before it ends the others.
failed_jobs_end_at_once = mock.patch.dict(os.environ, {"OMPI_MCA_odls_base_sigkill_timeout": "0"})


def clean_environment():
    """Without what would change the output of the one who runs the tests.

    Tests run beside one another: a thread that waits for work by spinning takes the cores of others.
    """
    hidden = ("NO_COLOR", "TERM", "LD_PRELOAD")
    shown = {name: value for name, value in os.environ.items() if name not in hidden}
    return {"OMP_WAIT_POLICY": "passive", **shown}


def launcher(ranks):
    command = [shutil.which("mpirun"), "--oversubscribe", "--bind-to", "none", "-n", str(ranks)]
    return [*command, "--allow-run-as-root"] if os.geteuid() == 0 else command


def mpirun(*groups):
    """The command of one job; each group of its ranks is (ranks, arguments of the program), or has a third
    element, what the shell does before it starts the program."""
    cases, world = [], 0
    for ranks, arguments, *before in groups:
        numbers = "|".join(str(rank) for rank in range(world, world + ranks))
        cases.append(f'{numbers}) {"".join(before)} exec "$@" {shlex.join(arguments)};;')
        world += ranks
    choice = f"case $OMPI_COMM_WORLD_RANK in {' '.join(cases)} esac"
    return [*launcher(world), "sh", "-c", choice, "sh", EXECUTABLE, *TINY, "--classes",
            "10"]


def limit(seconds):
    """A time limit that holds for an idle machine, on this one now."""
    return seconds * SLOWDOWN


def wait_until(condition, seconds):
    """Whether that holds within a time limit; what it gave last."""
    end = time.monotonic() + limit(seconds)
    while not (found := condition()) and time.monotonic() < end:
        time.sleep(0.05)
    return found


def cpu_seconds(pid):
    """That a process has used; 0 where it is gone."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            fields = file.read().rsplit(")", 1)[1].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def shown_by(process, until=None):
    """What its terminal shows, up to these bytes or to its end."""
    text = b""
    try:
        while not (until and until in text) and (part := os.read(process.terminal, 65536)):
            text += part
    except OSError:  # the end of a terminal
        pass
    return text.decode().replace("\r\n", "\n")


def places(value, most=None, path=()):
    """The path of every value below this one, of lists at most so many elements."""
    yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value[:most]) if isinstance(value, list) else ()
    for key, element in inner:
        yield from places(element, most, (*path, key))


class CliTest(unittest.TestCase):
    """Each test has a folder of its own, in which the executable runs."""

    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, content):
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(content)
        return self.path(name)

    def write_program(self, name, text):
        os.makedirs(os.path.dirname(self.path(name)), exist_ok=True)
        os.chmod(self.write(name, text), 0o755)

    def start(self, *arguments, **options):
        options = {"cwd": self.folder, "env": clean_environment(), "stdin": subprocess.DEVNULL,
                   "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **options}
        return subprocess.Popen([EXECUTABLE, *arguments], **options)

    def start_on_terminal(self, *arguments, columns=80, **options):
        """Its standard error is a terminal, for shown_by()."""
        terminal, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        process = self.start(*arguments, stderr=slave, env={**clean_environment(), "TERM": "xterm"},
                             **options)
        os.close(slave)
        process.terminal = terminal
        self.addCleanup(os.close, terminal)
        return process

    def start_into_window(self, *arguments, **options):
        """The same; a step of the timed window is done."""
        process = self.start_on_terminal(*arguments, **options)
        self.assertIn("s left", shown_by(process, until=b"s left"))
        return process

    def call(self, *arguments, **options):
        """Runs to the end; stdout and stderr are in `out` and `err` of the result."""
        process = self.start(*arguments, **options)
        process.out, process.err = process.communicate(timeout=limit(60))
        return process

    def tiny(self, *arguments, **options):
        """A run whose warm-up is one step, as its times are not what is looked at."""
        return self.call(*TINY, "--warmup", "1", *arguments, **options)

    def report(self, name="report.json"):
        with open(self.path(name), encoding="utf-8") as file:
            return json.load(file)

    def assert_refused(self, process, code, *fragments):
        """One line on stderr that holds the fragments, nothing on stdout, this exit code."""
        self.assertEqual(process.returncode, code, process.err)
        self.assertEqual(process.out, "")
        self.assertEqual(process.err.count("\n"), 1, process.err)
        self.assertTrue(process.err.startswith("nearmetal: "), process.err)
        for fragment in fragments:
            self.assertIn(fragment, process.err)


class SweepTest(CliTest):
    """Sweeps of tiny work; their reports are s.json."""

    def sweep(self, *arguments, **options):
        process = self.start("sweep", *TINY_WORK, "--output", "s.json", *arguments, **options)
        process.out, process.err = process.communicate(timeout=limit(100))
        return process

    def sweep_file(self, layouts, **options):
        return self.call("sweep", self.write("layouts.json", json.dumps(layouts)), "--output",
                         "s.json", **options)


def main():
    """Ends with 77, which CTest shows as skipped, where every test was, and not a part of it alone."""
    result = unittest.main(argv=[sys.argv[0], *sys.argv[2:]], exit=False).result
    skipped = sum(not hasattr(test, "test_case") for test, _ in result.skipped)
    if result.testsRun and skipped == result.testsRun:
        sys.exit(77)
    sys.exit(not result.wasSuccessful())
