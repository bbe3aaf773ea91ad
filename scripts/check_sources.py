#!/usr/bin/env python3
"""Checks which file includes what, and how long files are. Prints file:line of each breach.

    scripts/check_sources.py [FOLDER]     FOLDER: the project's root, by default the one above
"""

import pathlib
import re
import sys

# In patterns of paths, * is anything within a folder and ** anything at all.

# A folder of ours: what its files may include of ours.
ARROWS = {
    "bench": ["bench/**", "comm/*.h", "reports/**", "models/*.h"],
    "comm": ["comm/*.h", "reports/**", "models/graph.h", "models/program.h", "models/all_reduce.h",
             "models/load_module.h", "models/probe.h", "models/sixteen_bits.h",
             "models/training_options.h"],
    "comm/gpu": ["comm/gpu/*", "comm/*.h", "models/*.h", "models/cuda/pack.h"],
    "reports": ["reports/**", "models/graph.h", "models/program.h"],
    "models": ["models/*.h"],
    "models/cpu": ["models/cpu/**", "models/*.h"],
    "models/cuda": ["models/cuda/**", "models/*.h"],
    "tests": ["**"],
}

# Headers of an outside library: the files that may include them, and how many may, if it matters.
# Tests may use any of these as an oracle.
FENCES = [
    ("CLI/**", ["bench/command_line.cpp", "bench/*_options.*"], None),
    ("nlohmann/**", ["reports/*json*", "reports/safetensors.cpp", "comm/*json*",
                     "comm/layout_document.*"], None),
    ("yaml-cpp/**", ["comm/yaml*"], None),
    ("mpi.h", ["comm/mpi*"], 3),
    ("nccl*", ["comm/gpu/*"], None),
    ("hwloc.h", ["bench/environment/*"], None),
    ("nvml.h", ["bench/nvml*"], None),
    ("dnnl*", ["models/cpu/*"], None),
    ("oneapi/dnnl/*", ["models/cpu/*"], None),
    ("cudnn*", ["models/cuda/*"], None),
    ("cublas*", ["models/cuda/*"], None),
    ("cuda*", ["models/cuda/*", "comm/gpu/*", "bench/micro/*"], None),
    ("gtest/*", [], None),
    ("gmock/*", [], None),
]

MAX_LINES = 320
# Other limits, each with its reason.
LINE_LIMITS = {
    "bench/main.cpp": 90,  # the whole program at a glance
}

SUFFIXES = {".h", ".cpp", ".cu"}
INCLUDE = re.compile(r'\s*#\s*include\s*[<"]([^>"]+)[>"]')


def source_files(root):
    for folder in ("bench", "comm", "models", "reports", "tests"):
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in SUFFIXES:
                yield path


def as_regex(pattern):
    return re.escape(pattern).replace(r"\*\*", ".*").replace(r"\*", "[^/]*")


def matches(name, patterns):
    return any(re.fullmatch(as_regex(pattern), name) for pattern in patterns)


def allowed_of_ours(name):
    """What the file may include of ours: the entry of the innermost folder that has one."""
    for folder in pathlib.PurePosixPath(name).parents:
        if str(folder) in ARROWS:
            return ARROWS[str(folder)]
    raise KeyError(f"{name} is in no folder that ARROWS knows")


def includes_of(path):
    """Line number and header of each include."""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if found := INCLUDE.match(line):
            yield number, found[1]


def included_path(root, path, header):
    """Our file that the header names, relative to the root, or None: from the root, or beside."""
    for candidate in (root / header, path.parent / header):
        if candidate.is_file() and root in candidate.resolve().parents:
            return candidate.resolve().relative_to(root).as_posix()
    return None


def check_file(root, path, users):
    """Breaches in one file; `users` collects, for each fence, the files that stand behind it."""
    name = path.relative_to(root).as_posix()
    lines = len(path.read_text(encoding="utf-8").splitlines())
    limit = LINE_LIMITS.get(name, MAX_LINES)
    if lines > limit:
        yield f"{name}:{lines}: {lines} lines, {limit} at most: split it by what changes together"
    for number, header in includes_of(path):
        ours = included_path(root, path, header)
        if ours is not None:
            if ours != header:
                yield f"{name}:{number}: write \"{ours}\", the path from the root, not {header}"
            if not matches(ours, allowed_of_ours(name)):
                yield f"{name}:{number}: may not include {ours}"
        elif not name.startswith("tests/"):
            yield from check_fences(name, number, header, users)


def check_fences(name, number, header, users):
    for fence, homes, _ in FENCES:
        if matches(header, [fence]):
            users.setdefault(fence, set()).add(name)
            if not matches(name, homes):
                yield f"{name}:{number}: {header} belongs in {' or '.join(homes) or 'tests'} only"


def check(root):
    root = root.resolve()
    users = {}
    for path in source_files(root):
        yield from check_file(root, path, users)
    for fence, _, most in FENCES:
        names = sorted(users.get(fence, ()))
        if most is not None and len(names) > most:
            yield f"{names[-1]}:1: {fence} is included by {len(names)} files, {most} at most"


def main():
    here = pathlib.Path(__file__).resolve().parent.parent
    root = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else here
    breaches = list(check(root))
    for breach in breaches:
        print(breach)
    return 1 if breaches else 0


if __name__ == "__main__":
    sys.exit(main())
