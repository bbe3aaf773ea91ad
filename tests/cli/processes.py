"""What runs below a sweep or a launcher, as /proc shows it."""

import os
import subprocess


def children_of(pid):
    found = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, check=False)
    return [int(child) for child in found.stdout.split()]


def ranks_below(pid):
    """Processes of `nearmetal run` that descend from this one."""
    ranks = []
    for child in children_of(pid):
        try:
            with open(f"/proc/{child}/cmdline", "rb") as file:
                program = os.path.basename(file.read().split(b"\0")[0])
        except (FileNotFoundError, ProcessLookupError):
            continue  # it ended meanwhile, as shells on the way to a rank do
        ranks += [child] if program == b"nearmetal" else []
        ranks += ranks_below(child)
    return ranks


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
