#!/usr/bin/env python3
"""Puts small faults into the sources and lists those that no test sees: ctest -C slow -R mutants.

tests/mutants.json names each: the expression `was`, once in `file`, and what it `becomes`. All are
compiled at once, into a copy of the sources where NEARMETAL_MUTANT of the environment chooses one.
The unit tests, and then the simulations, run once without a mutant and once with each, until one
fails. Exit 1 where more than 10 % of the mutants survive.
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

SOURCES = pathlib.Path(__file__).resolve().parent.parent
SUITES = [["-L", "^unit$"], ["-R", "^simulation_test"]]  # as ctest selects them
MOST_SURVIVORS = 0.1
SECONDS = 120  # of a test; a mutant may hang
SWITCH = """#pragma once
#include <cstdlib>
inline bool is_mutant(int number) {
  static const char* const chosen = std::getenv("NEARMETAL_MUTANT");
  return chosen != nullptr && std::atoi(chosen) == number;
}
"""


def copy_with_mutants(mutants, folder):
    """Copies the files that git lists. Keeps their times, so that a second build is a short one."""
    files = subprocess.run(["git", "ls-files", "-z"], cwd=SOURCES, capture_output=True,
                           check=True).stdout.decode().rstrip("\0").split("\0")
    texts = {}
    for number, mutant in enumerate(mutants, 1):
        text = texts.get(mutant["file"]) or (SOURCES / mutant["file"]).read_text()
        if text.count(mutant["was"]) != 1:
            sys.exit(f"mutant {number} ({mutant['id']}): `{mutant['was']}` is not once in "
                     f"{mutant['file']}")
        both = f"(is_mutant({number}) ? ({mutant['becomes']}) : ({mutant['was']}))"
        texts[mutant["file"]] = text.replace(mutant["was"], both)
    texts = {file: '#include "tests/is_mutant.h"\n' + text for file, text in texts.items()}
    texts["tests/is_mutant.h"] = SWITCH
    for file in files:
        target = folder / file
        target.parent.mkdir(parents=True, exist_ok=True)
        if file not in texts and (SOURCES / file).is_file():
            shutil.copy2(SOURCES / file, target)
    for file, text in texts.items():
        if not (folder / file).is_file() or (folder / file).read_text() != text:
            (folder / file).write_text(text)


def build(folder):
    subprocess.run(["cmake", "--preset", "cpu-only", "-DNEARMETAL_TESTS=ON"], cwd=folder, check=True,
                   stdout=subprocess.DEVNULL)
    subprocess.run(["cmake", "--build", "build"], cwd=folder, check=True)


def first_failure(build_folder, number, jobs):
    """The first test that fails; None where all pass."""
    environment = dict(os.environ, NEARMETAL_MUTANT=str(number))
    for suite in SUITES:
        command = ["ctest", *suite, "--no-tests=error", "--stop-on-failure", "--timeout", str(SECONDS),
                   "-j", str(jobs)]
        ended = subprocess.run(command, cwd=build_folder, env=environment, stdin=subprocess.DEVNULL,
                               capture_output=True, text=True, errors="replace")
        if ended.returncode != 0:
            failed = re.search(r"^\s*\d+ - (.+) \(", ended.stdout, re.MULTILINE)
            return failed[1] if failed else ended.stdout + ended.stderr
    return None


def run(mutants, build_folder, jobs):
    unchanged = first_failure(build_folder, 0, jobs)
    if unchanged:
        sys.exit(f"without a mutant {unchanged} fails")
    survivors = []
    for number, mutant in enumerate(mutants, 1):
        failure = first_failure(build_folder, number, jobs)
        print(f"{number:2} {mutant['id']}: {f'killed by {failure}' if failure else 'SURVIVES'}",
              flush=True)
        if not failure:
            survivors.append(mutant)
    print(f"{len(survivors)} of {len(mutants)} survive")
    for mutant in survivors:
        print(f"  {mutant['file']}: {mutant['was']} -> {mutant['becomes']}")
    return 1 if len(survivors) > MOST_SURVIVORS * len(mutants) else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("folder", type=pathlib.Path, help="for the copy and its build")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="at once [CPUs]")
    options = parser.parse_args()
    mutants = json.loads((SOURCES / "tests/mutants.json").read_text())
    folder = options.folder.resolve()
    copy_with_mutants(mutants, folder)
    build(folder)
    return run(mutants, folder / "build", options.jobs)


if __name__ == "__main__":
    sys.exit(main())
