#!/usr/bin/env python3
"""Puts small faults into the sources and lists those that no test sees: ctest -C slow -R mutants.

tests/mutants.json names each: the expression `was`, once in `file`, and what it `becomes`. All are
compiled at once, into a copy of the sources where NEARMETAL_MUTANT of the environment chooses one.
The programs of the unit tests and the simulations run once as they are, then once per mutant, which
is killed by the first test that fails. Exit 1 where more than 10 % survive.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

SOURCES = pathlib.Path(__file__).resolve().parent.parent
PROGRAMS = ["models_test", "comm_test", "evidence_test", "reports_test", "bench_test",
            "simulation_test"]
MOST_SURVIVORS = 0.1
SECONDS = 600  # of a program; a mutant may hang
SWITCH = """#pragma once
#include <cstdlib>
inline bool is_mutant(int number) {
  static const char* const chosen = std::getenv("NEARMETAL_MUTANT");
  return chosen != nullptr && std::atoi(chosen) == number;
}
"""


def copy_with_mutants(mutants, folder):
    """Copies what git lists; writes what is unchanged already no second time, for the build."""
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
    subprocess.run(["cmake", "--build", "build", "--target", "nearmetal", *PROGRAMS], cwd=folder,
                   check=True)


def first_failure(build_folder, number):
    """The first test that fails; None where all pass."""
    environment = dict(os.environ, NEARMETAL_MUTANT=str(number))
    for program in PROGRAMS:
        command = [str(build_folder / program), "--gtest_fail_fast", "--gtest_brief=1"]
        if program == "simulation_test":
            command.append("--gtest_filter=-GateSimulation.TheTableOfTheNotesIsTrue")
        try:
            ended = subprocess.run(command, cwd=build_folder, env=environment, timeout=SECONDS,
                                   stdin=subprocess.DEVNULL, capture_output=True, text=True,
                                   errors="replace")
        except subprocess.TimeoutExpired:
            return f"{program}: no end"
        if ended.returncode != 0:
            failed = re.search(r"\[  FAILED  \] (\S+)", ended.stdout)
            return failed[1] if failed else f"{program}: exit {ended.returncode}"
    return None


def run(mutants, build_folder, jobs):
    unchanged = first_failure(build_folder, 0)
    if unchanged:
        sys.exit(f"without a mutant {unchanged} fails")
    survivors = []
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        numbers = range(1, len(mutants) + 1)
        found = pool.map(lambda number: first_failure(build_folder, number), numbers)
        for number, (mutant, failure) in enumerate(zip(mutants, found), 1):
            verdict = f"killed by {failure}" if failure else "SURVIVES"
            print(f"{number:2} {mutant['id']}: {verdict}", flush=True)
            if not failure:
                survivors.append(mutant)
    print(f"{len(survivors)} of {len(mutants)} survive")
    for mutant in survivors:
        print(f"  {mutant['file']}: {mutant['was']} -> {mutant['becomes']}")
    return 1 if len(survivors) > MOST_SURVIVORS * len(mutants) else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("folder", type=pathlib.Path, help="for the copy and its build")
    parser.add_argument("--build-only", action="store_true", help="run elsewhere")
    parser.add_argument("--run-only", action="store_true", help="what is built in FOLDER/build")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="at once [CPUs]")
    options = parser.parse_args()
    mutants = json.loads((SOURCES / "tests/mutants.json").read_text())
    folder = options.folder.resolve()
    if not options.run_only:
        copy_with_mutants(mutants, folder)
        build(folder)
    return 0 if options.build_only else run(mutants, folder / "build", options.jobs)


if __name__ == "__main__":
    sys.exit(main())
