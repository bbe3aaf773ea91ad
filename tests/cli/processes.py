"""What runs below a sweep or a launcher, as /proc shows it."""

import os
import re
import subprocess


def children_of(pid):
    found = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, check=False)
    return [int(child) for child in found.stdout.split()]


def ranks_below(pid):
    """Processes of `nearmetal run` that descend from this one.

    Until a forked process executes a command of its own, /proc shows that of its parent. So neither
    processes of other commands of nearmetal nor children of a rank count.
    """
    ranks = []
    for child in children_of(pid):
        try:
            with open(f"/proc/{child}/cmdline", "rb") as file:
                program, *arguments = file.read().split(b"\0")
        except (FileNotFoundError, ProcessLookupError):
            continue  # it ended meanwhile, as shells on the way to a rank do
        is_rank = os.path.basename(program) == b"nearmetal" and arguments[:1] == [b"run"]
        ranks += [child] if is_rank else ranks_below(child)
    return ranks


def command_of(pid):
    """Its words; none where it has ended."""
    try:
        with open(f"/proc/{pid}/cmdline", encoding="utf-8") as file:
            return file.read().split("\0")
    except (FileNotFoundError, ProcessLookupError):
        return []


def blocks(pid, number):
    """Whether this process blocks a signal, as a run does once it waits for it in a thread."""
    try:
        with open(f"/proc/{pid}/status", encoding="ascii") as file:
            blocked = re.search(r"SigBlk:\s*(\w+)", file.read())[1]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return bool(int(blocked, 16) & 1 << (number - 1))


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def rank_of(pid):
    with open(f"/proc/{pid}/environ", "rb") as file:
        variables = file.read().split(b"\0")
    name = b"OMPI_COMM_WORLD_RANK="
    return next(int(text[len(name):]) for text in variables if text.startswith(name))
