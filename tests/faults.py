#!/usr/bin/env python3
"""Injects faults into sweeps and runs of tiny work on the CPU, and counts what they do harm to.

    tests/faults.py PROGRAM [--only KIND] [--seed N]

Kinds: signals, journals, disks, liars, pairs. Each prints a line of counts: orphans are processes left,
leftovers files in the folder, among the temporary ones or in shared memory, corrupt are reports that
`validate` refuses and journals with damage, lost what was measured and is in no report or journal, hangs
what had to be killed. Details go to stderr. Exit 1 where a count is not 0; 77 (skipped) where not root,
which namespaces of its own take, so that no process or mount outlives it. It takes
forty minutes on two busy cores.
"""

import argparse
import glob
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time

from injection import Injection, Kind, cli, mpiruns, ranks, runs_of, wait_until, whole_lines

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGKILL)
SWEEP = ["sweep", *cli.TINY_WORK, "--output", "s.json"]


def trigger(injection, target, phase, process, chance):
    """Waits for the phase; the process ids of the target."""
    def targets():
        if target in ("run", "sweep"):
            return [process.pid]
        return mpiruns() if target == "mpirun" else ranks()[-1:]

    def writes():
        try:
            opened = [os.readlink(name) for name in glob.glob(f"/proc/{process.pid}/fd/*")]
        except OSError:
            return process.poll() is not None
        return (process.poll() is not None or whole_lines(injection.path("s.jsonl")) or
                any(name.startswith(injection.folder) and not name.endswith(".jsonl")
                    for name in opened))

    workers = (lambda: [process.pid]) if target == "run" else ranks
    if phase == "start-up":
        wait_until(targets, 30, 0.001)
        time.sleep(chance.uniform(0, 0.1))
    elif phase != "writing":  # a second of CPU is past set-up, three are past a warm-up of steps
        used = 1 if phase == "warm-up" else 3
        wait_until(lambda: (found := workers()) and all(
            cli.cpu_seconds(pid) > used for pid in found), 120)
    elif target in ("run", "sweep"):
        wait_until(writes, 60, 0.0005)
        time.sleep(chance.uniform(0, 0.002))
    else:
        wait_until(targets, 30, 0.001)
        time.sleep(chance.uniform(0.3, 1))
    return targets()


LAYOUT = ["1x1x2", "--repeats", "1"]
# What is started, and which of its processes get the signals.
WORKS = {
    "run": ([*cli.TINY, "--output", "s.json"], ("run",)),
    "sweep": ([*SWEEP, *LAYOUT], ("sweep", "mpirun", "rank")),
    "sweep --grid": ([*SWEEP, *LAYOUT, "--grid", "accumulate=1,2"], ("sweep",)),
    "tf_cnn_benchmarks": (
        ["tf_cnn_benchmarks", "--model=resnet50", "--num_gpus=2", "--device=cpu", "--",
         *cli.TINY_WORK, "--output", "s.json"], ("sweep", "mpirun")),
    "mpirun run --update independent": (
        [*cli.TINY, "--output", "s.json", "--update", "independent"], ("mpirun", "rank")),
}


def one_signal(kind, number, name, target, phase, chance):
    # A number of steps, since tf_cnn_benchmarks has one anyway.
    endless = ["--steps", "1000000"] if name == "tf_cnn_benchmarks" else ["--duration", "600"]
    length = {"start-up": endless, "warm-up": ["--warmup", "1000000"], "window": endless,
              "writing": ["--steps", "40"]}[phase]
    work = WORKS[name][0]
    with Injection(kind, f"SIG{number.name[3:]} to {target} of {name} in {phase}") as injection:
        by_hand = name.startswith("mpirun")
        process = injection.start(*work, *length, before=cli.launcher(2) if by_hand else ())
        for pid in trigger(injection, target, phase, process, chance)[:1]:
            os.kill(pid, number)
        kills = number == signal.SIGKILL
        own = target in ("run", "sweep") or by_hand and target == "mpirun"
        codes = {-number} if own and kills else {128 + number} if own else {6, 128 + number}
        codes |= {0} if phase == "writing" else set()
        codes |= {-number} if own and phase == "start-up" else set()  # before it is watched for
        if by_hand:  # mpirun's own, and that of a rank which another one stopped
            codes |= {1} if target == "mpirun" else {143}
        injection.finish(process, codes)
        injection.look_around(of_launcher=by_hand and own and kills)
        runs = runs_of(injection.path("s.json")) or whole_lines(injection.path("s.jsonl")) or []
        if own and kills:
            return  # nothing can be written, but what the journal holds
        if phase in ("window", "writing") and not runs:
            injection.found("lost", "no report")
        elif phase == "window" and not kills and not runs[0].get("window"):
            injection.found("lost", f"no window: {runs[0].get('failure')}")


def signals(kind, chance):
    for name, (_, targets) in WORKS.items():
        for target in targets:
            for phase in ("start-up", "warm-up", "window", "writing"):
                for number in SIGNALS:
                    one_signal(kind, number, name, target, phase, chance)


def journals(kind, _):
    """Cut at every k-th byte; --resume keeps what is whole, where a new run fails at once.

    At every byte `ctest -C slow -R cut_journal` cuts one, without a process for each.
    """
    with Injection(kind, "whole") as whole:
        ends = whole.write("ends", f'#!/bin/sh\ncd {whole.folder}\n[ -e third ] && exit 6\n'
                           f'exec {cli.EXECUTABLE} "$@"\n', 0o755)
        layouts = whole.write("layouts.txt", json.dumps(
            {"layouts": [{"name": "one", "shape": "1x1x1"}], "repeats": 3,
             "launcher": {"program": ends}}))
        process = whole.start(*SWEEP, layouts, "--steps", "1")
        wait_until(lambda: len(whole_lines(whole.path("s.jsonl")) or []) == 2, 60, 0.001)
        process.kill()
        whole.finish(process, {-signal.SIGKILL})
        whole.look_around(("ends", "layouts.txt"))
        whole.write("third", "")
        with open(whole.path("s.jsonl"), "rb") as file:
            journal = file.read()
        ends_of_lines = [i for i, byte in enumerate(journal) if byte == ord("\n")]
        every = max(1, len(journal) // 100)
        near = {end + shift for end in ends_of_lines for shift in range(-3, 4)}
        for size in sorted(set(range(0, len(journal), every)) | near):
            if size > len(journal):
                continue
            kind.injections += 1
            whole.name = f"cut at byte {size} of {len(journal)}"
            with open(whole.path("s.jsonl"), "wb") as file:
                file.write(journal[:size])
            out, err = whole.finish(whole.start(*SWEEP, layouts, "--steps", "1", "--resume",
                                                "s.jsonl", "--force"), {6})
            complete = sum(run["status"] == "complete" for run in runs_of(whole.path("s.json")))
            if complete < sum(end < size for end in ends_of_lines[1:]):
                whole.found("lost", out + err)
            whole.look_around(("ends", "layouts.txt", "third"))


def mount_disk(size_kib, folder):
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size_kib}k", "tmpfs", folder], check=True)


def disks(kind, _):
    for size_kib in (4, 256, 4096, 16384):
        one_temporary_disk(kind, size_kib)
    for size_kib in (4, 16, 32, 48, 64, 256, 4096):
        with Injection(kind, f"disk of {size_kib} KiB") as injection:
            mount_disk(size_kib, injection.folder)
            process = injection.start(*SWEEP, "1x1x1", "--repeats", "3", "--steps", "3")
            out, _ = injection.finish(process, {0, 9})
            reports = glob.glob(injection.path("s.json")) + glob.glob(injection.temporary + "/*.json")
            if "images/s" not in out:
                injection.found("lost", "no table")
            elif not reports and not whole_lines(injection.path("s.jsonl")):
                injection.found("lost", "no report")
            if process.returncode != (0 if os.path.exists(injection.path("s.json")) else 9):
                injection.found("wrong_exit", process.returncode)
            for name in glob.glob(injection.temporary + "/*.json"):
                shutil.move(name, injection.root)
            injection.look_around()
            subprocess.run(["umount", injection.folder], check=True)


def one_temporary_disk(kind, size_kib):
    """For the folders of jobs, in which mpirun may not find room: it ends, or stands still."""
    layouts = {"layouts": [{"name": "two", "shape": "1x1x2"}], "repeats": 1,
               "limits": {"start_seconds": 15}}
    with Injection(kind, f"temporary disk of {size_kib} KiB") as injection:
        mount_disk(size_kib, injection.temporary)
        file = injection.write("layouts.txt", json.dumps(layouts))
        process = injection.start(*SWEEP, file, "--steps", "3")
        injection.finish(process, {0, 6, 7})
        statuses = [run["status"] for run in runs_of(injection.path("s.json"))]
        if statuses != ["failed" if process.returncode else "complete"]:
            injection.found("lost", f"{statuses}, exit {process.returncode}")
        injection.look_around(("layouts.txt",))
        subprocess.run(["umount", injection.temporary], check=True)


TRUTH = {"program": f'{cli.EXECUTABLE} "$@"', "executable": f'{cli.EXECUTABLE} "$@"',
         "mpirun": f'{shutil.which("mpirun")} "$@"'}
LIES = {
    "garbage": "head -c 100000 /dev/urandom",
    "nothing": "true",
    "flood": "yes",
    "flood of errors": "yes >&2",
    "truncated result": "TRUTH | head -c 9000",
    "result of other work": "[ -e told ] && TRUTH --seed=7 --batch=4 || { >told; TRUTH; }",
    "other work": "TRUTH --seed=7 --batch=4",
    "last report alone": "TRUTH >/dev/null",  # which rank 0 leaves in the job's folder
    "cut last report": "TRUTH >/dev/null; truncate -s 5000 $NEARMETAL_LAST_REPORT; exit 1",
    "events as errors": "TRUTH >&2",
    "killed": "TRUTH >told & sleep 1; kill -9 $$",
    "result twice": "TRUTH > told; cat told told",
    "escapes": "printf '\\033]0;owned\\007\\033[2J'; printf '\\033[31m' >&2; exit 3",
    "hang": "sleep 100000",
    "hang after the result": "TRUTH; sleep 100000",
}


def one_lie(kind, name, lie, way):
    layouts = {"layouts": [{"name": "one", "shape": "1x1x1"}], "repeats": 1,
               "limits": {"start_seconds": 10, "step_seconds": 10, "job_seconds": 30}}
    layouts["repeats"] = 2 if name == "result of other work" else 1  # the second time
    with Injection(kind, f"{name} by {way}") as injection:
        place = "mpirun" if way == "mpirun" else "liar"
        script = f"#!/bin/sh\ncd {injection.folder}\n" + lie.replace("TRUTH", TRUTH[way]) + "\n"
        injection.write(place, script, 0o755)
        variables = {}
        if way == "mpirun":
            layouts["layouts"] = [{"name": "two", "shape": "1x1x2"}]
            variables["PATH"] = injection.folder + ":" + os.environ["PATH"]
        elif way == "program":
            layouts["launcher"] = {"program": injection.path(place)}
        else:
            layouts["layouts"][0]["executable"] = injection.path(place)
        file = injection.write("layouts.txt", json.dumps(layouts))
        process = injection.start(*SWEEP, file, "--steps", "3", **variables)
        if name.startswith("flood") and way == "program":  # the limits are for the others
            time.sleep(2)
            process.terminate()
        out, err = injection.finish(process, {0, 2, 6, 7, 143})  # 2: of a job
        if "\033" in out + err:
            injection.found("corrupt", "escape sequences reach the terminal")
        runs = runs_of(injection.path("s.json"))
        if not runs:
            injection.found("lost", "no report: " + err[-200:])
        elif ("result" not in name or "truncated" in name) and any(
                run["status"] == "complete" for run in runs):
            injection.found("corrupt", "the lie is believed")
        injection.look_around(("layouts.txt", place, "told"))


def liars(kind, _):
    ways = ["program", "mpirun"]
    schema = subprocess.run([cli.EXECUTABLE, "schema", "layout"], capture_output=True, text=True,
                            check=True).stdout
    if '"executable"' in schema:
        ways.append("executable")
    else:
        kind.remark = "  (layouts of this program name no executable)"
    for way in ways:
        for name, lie in LIES.items():
            one_lie(kind, name, lie, way)


def pairs(kind, _):
    """Two sweeps at once that share their folder of temporary files."""
    for i in range(100):
        with Injection(kind, f"pair {i}") as one, Injection(kind, f"pair {i}") as other:
            kind.injections -= 1
            started = [job.start(*SWEEP, "1x1x2", "--repeats", "1", "--steps", "3",
                                 TMPDIR=one.temporary) for job in (one, other)]
            for job, process in zip((one, other), started):
                job.finish(process, {0})
            for job in (one, other):
                job.look_around()
                if [run["status"] for run in runs_of(job.path("s.json"))] != ["complete"]:
                    job.found("lost", "no complete run")


KINDS = {"signals": signals, "journals": journals, "disks": disks, "liars": liars, "pairs": pairs}


def in_namespaces():
    """Starts this again in namespaces of its own, with shared memory of its own."""
    within = 'mount -t tmpfs tmpfs /dev/shm; "$@"; exit $?'
    os.execvp("unshare", ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc",
                          "env", "NEARMETAL_FAULTS_WITHIN=1", "sh", "-c", within, "sh",
                          sys.executable, "-B", *sys.argv])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--only", choices=KINDS)
    parser.add_argument("--seed", type=int, default=1, help="of the moments of signals")
    options = parser.parse_args()
    if os.geteuid() or not shutil.which("unshare"):
        print("faults: skipped: not root, or no unshare")
        sys.exit(77)
    if "NEARMETAL_FAULTS_WITHIN" not in os.environ:
        in_namespaces()
    harmed = False
    for name in [options.only] if options.only else KINDS:
        kind = Kind(name)
        KINDS[name](kind, random.Random(options.seed))
        print(kind, flush=True)
        harmed = harmed or any(kind.counts.values())
    sys.exit(harmed)


if __name__ == "__main__":
    main()
