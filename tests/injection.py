"""One fault, its folders, and what it did harm to: for faults.py."""

import collections
import glob
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

FOLDER = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(FOLDER, "cli"), os.path.join(FOLDER, "limits")]
import cli  # pylint: disable=wrong-import-position
from slowdown import slowdown  # pylint: disable=wrong-import-position

HARM = ("orphans", "leftovers", "corrupt", "lost", "wrong_exit", "hangs")
OUTPUTS = {"s.json", "s.jsonl"}


def processes():
    """Those of this namespace but its first and this one: arguments by process id."""
    found = {}
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) in (1, os.getpid()):
            continue
        try:
            with open(f"/proc/{name}/cmdline", encoding="utf-8", errors="replace") as file:
                arguments = file.read().split("\0")
        except OSError:
            continue
        if arguments[0]:  # else a zombie
            found[int(name)] = arguments
    return found


def ranks():
    return sorted(pid for pid, arguments in processes().items()
                  if os.path.basename(arguments[0]) == "nearmetal" and arguments[1:2] == ["run"])


def mpiruns():
    return [pid for pid, arguments in processes().items()
            if os.path.basename(arguments[0]) == "mpirun"]


def wait_until(holds, seconds, step_seconds=0.02):
    """What holds() returned last, which is false where it never held."""
    end = time.monotonic() + seconds * slowdown()
    while not (value := holds()) and time.monotonic() < end:
        time.sleep(step_seconds)
    return value


def read_json(path):
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError):
        return None


def runs_of(path):
    """Of the report of that path; none where it cannot be read."""
    report = read_json(path) or {"arms": []}
    return [run for arm in report["arms"] for run in arm["runs"]]


def whole_lines(journal):
    """Lines that are JSON, without the header; where one before the last is not, None."""
    try:
        with open(journal, "rb") as file:
            lines = file.read().splitlines()
    except OSError:
        return []
    whole = []
    for i, line in enumerate(lines):
        try:
            whole.append(json.loads(line))
        except ValueError:
            if i + 1 < len(lines):
                return None
    return whole[1:]


class Kind:
    """Counts of one kind of fault."""

    def __init__(self, name):
        self.name, self.injections, self.counts, self.remark = name, 0, collections.Counter(), ""

    def found(self, harm, where, detail=""):
        self.counts[harm] += 1
        print(f"  {self.name}: {where}: {harm}: {str(detail)[:300]}", file=sys.stderr, flush=True)

    def __str__(self):
        counts = "  ".join(f"{harm} {self.counts[harm]}" for harm in HARM)
        return f"{self.name:9} injections {self.injections:4}  {counts}{self.remark}"


class Injection:
    """One fault in folders of its own, which are empty at the start."""

    def __init__(self, kind, name):
        self.kind, self.name, self.processes = kind, name, []
        self.root = tempfile.mkdtemp(prefix="nearmetal-faults-")
        self.folder, self.temporary = os.path.join(self.root, "work"), os.path.join(self.root, "tmp")
        os.mkdir(self.folder)
        os.mkdir(self.temporary)
        kind.injections += 1

    def __enter__(self):
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.root)

    def found(self, harm, detail=""):
        self.kind.found(harm, self.name, detail)

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, text, mode=0o644):
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(self.path(name), mode)
        return self.path(name)

    def start(self, *arguments, before=(), **variables):
        environment = {**cli.clean_environment(), "TMPDIR": self.temporary, **variables}
        return subprocess.Popen([*before, cli.EXECUTABLE, *arguments], cwd=self.folder, env=environment,
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True, errors="replace")

    def finish(self, process, codes, seconds=60):
        """Its outputs, once it has ended with one of the codes, or was killed as it hung."""
        try:
            out, err = process.communicate(timeout=seconds * slowdown())
        except subprocess.TimeoutExpired:
            self.found("hangs", process.args)
            for pid in processes():
                os.kill(pid, signal.SIGKILL)
            return process.communicate()
        if process.returncode not in codes:
            self.found("wrong_exit", f"{process.returncode}, not of {codes}: {err[-250:]!r}")
        return out, err

    def look_around(self, allowed=(), of_launcher=False):
        """For processes, files and reports, once all has ended.

        Where `of_launcher`, an mpirun that no sweep started may have left its own files.
        """
        def left():
            shared = [name for name in os.listdir("/dev/shm") if "__KMP" not in name]
            files = [name for name in os.listdir(self.folder) if name not in OUTPUTS | set(allowed)]
            return [name for name in shared + files + os.listdir(self.temporary)
                    if not (of_launcher and name.startswith(("vader_segment.", "ompi.")))]
        wait_until(lambda: not processes(), 10)
        for pid, arguments in processes().items():
            self.found("orphans", " ".join(arguments))
            os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not left(), 2)
        if left():
            self.found("leftovers", left())
        for folder in ("/dev/shm", self.temporary):  # not to be found again
            for name in glob.glob(folder + "/*"):
                if os.path.isdir(name):
                    shutil.rmtree(name)
                else:
                    os.remove(name)
        for name in glob.glob(self.path("*.json")):
            validated = subprocess.run([cli.EXECUTABLE, "validate", name], capture_output=True,
                                       text=True, check=False)
            if name.endswith("s.json") and validated.returncode:
                self.found("corrupt", validated.stdout + validated.stderr)
        if whole_lines(self.path("s.jsonl")) is None:
            self.found("corrupt", "s.jsonl")
