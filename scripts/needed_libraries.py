#!/usr/bin/env python3
"""The oldest C and C++ libraries on which what a bundle holds can be loaded.

    scripts/needed_libraries.py FOLDER [--check]

FOLDER is an unpacked bundle. For each library of symbol versions it prints the newest version that
any file needs, and which files do. --check: ends with 1 where one is newer than the bundle may need.
"""

import argparse
import collections
import pathlib
import re
import subprocess
import sys

# The versions that RHEL 9 and Ubuntu 22.04 have: glibc 2.34, the libraries of GCC 11. OpenMP's
# comes along.
NEWEST = {"GLIBC": "2.34", "GLIBCXX": "3.4.29", "CXXABI": "1.3.13", "GCC": "7.0.0"}
# Libraries of the node, with its driver and MPI, or NVIDIA's own, which are packed on demand.
OF_NVIDIA = re.compile(r"lib(cudnn|cublas|nvrtc|nccl).*")

# In "Version References": "  0x0d696914 0x00 05 GLIBC_2.34"; weak ones, 0x02, may be missing.
REFERENCE = re.compile(r"^\s+0x\w+ 0x00 \d+ (GLIBC|GLIBCXX|CXXABI|GCC)_(\d[\d.]*)$", re.M)


def number(version):
    return tuple(int(part) for part in version.split("."))


def is_elf(path):
    with open(path, "rb") as file:
        return file.read(4) == b"\x7fELF"


def needs_of(path):
    """The newest version of each library that a file refers to."""
    process = subprocess.run(["objdump", "-p", path], check=True, capture_output=True, text=True)
    newest = {}
    for library, version in REFERENCE.findall(process.stdout):
        newest[library] = max(newest.get(library, "0"), version, key=number)
    return newest


def needs_below(folder):
    """The same by file, for those that run here and were built here or by the distribution."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    return {path: needs_of(path) for path in files
            if is_elf(path) and not OF_NVIDIA.fullmatch(path.name)}


def too_new(path, needs):
    return [f"{path.name} needs {library}_{version}, and may need {NEWEST[library]}"
            for library, version in needs.items() if number(version) > number(NEWEST[library])]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=pathlib.Path, help="an unpacked bundle")
    parser.add_argument("--check", action="store_true", help="exit 1 where one is too new")
    arguments = parser.parse_args()
    needs = needs_below(arguments.folder)
    if not needs:
        sys.exit(f"needed_libraries.py: there is no program in {arguments.folder}")
    users = collections.defaultdict(lambda: collections.defaultdict(list))
    for path, versions in needs.items():
        for library, version in versions.items():
            users[library][version].append(path.name)
    for library, by_version in sorted(users.items()):
        newest = max(by_version, key=number)
        print(f"{library}_{newest}: {', '.join(by_version[newest])}")
    breaches = [text for path, versions in needs.items() for text in too_new(path, versions)]
    for text in breaches:
        print(text, file=sys.stderr)
    return 1 if arguments.check and breaches else 0


if __name__ == "__main__":
    sys.exit(main())
