"""What sweeps keep, and how they go on: failed runs, more repeats, other builds, full disks; and what
they leave behind when they or their jobs are killed."""

import json
import os
import shlex
import shutil
import signal
import unittest

import cli
from processes import alive, children_of, ranks_below

BUILD_ID_NOTE = b"\4\0\0\0\x14\0\0\0\3\0\0\0GNU\0"


def trains(rank):
    """It has used a second of CPU, which a rank that sets up has not."""
    return cli.cpu_seconds(rank) > 1.5


def shared_memory(rank):
    """Its files, once it has some."""
    with open(f"/proc/{rank}/maps", encoding="utf-8") as file:
        return {line.split()[5] for line in file if "/dev/shm/" in line and "__KMP" not in line}


class Resume(cli.SweepTest):
    def program(self, name, script):
        """A program in place of nearmetal."""
        path = self.write(name, f'#!/bin/sh\ncd {self.folder}\n{script}\nexec {cli.EXECUTABLE} "$@"\n')
        os.chmod(path, 0o755)
        return path

    def another_build(self):
        """A copy of the executable that the linker called by another name."""
        folder = os.path.dirname(cli.EXECUTABLE)
        for module in os.listdir(folder):
            if module.startswith("libnearmetal_"):
                os.symlink(os.path.join(folder, module), self.path(module))
        copy = shutil.copy(cli.EXECUTABLE, self.path("nearmetal"))
        with open(copy, "r+b") as file:
            at = file.read().index(BUILD_ID_NOTE) + len(BUILD_ID_NOTE)
            file.seek(at)
            file.write(b"another build of it!")
        return copy

    def sweep_of(self, program, *arguments, names=("one",)):
        layouts = {"layouts": [{"name": name, "shape": "1x1x1"} for name in names], "order": "listed",
                   "launcher": {"program": program}}
        return self.sweep(self.write("layouts.json", json.dumps(layouts)), "--steps", "3", *arguments)

    def runs(self):
        return self.report("s.json")["arms"][0]["runs"]

    @cli.failed_jobs_end_at_once
    def test_failed_runs_are_taken_again_and_more_beside_them(self):
        program = self.program("breaks", '[ -e repaired ] || { echo "nearmetal: broken" >&2; exit 6; }')
        process = self.sweep_of(program, "--repeats", "1")
        self.assertEqual(process.returncode, 6, process.err)
        self.assertIn("take failed runs again with: ", process.err)
        self.write("repaired", "")
        go_on = ("--resume", "s.jsonl", "--force")
        process = self.sweep_of(program, "--repeats", "2", *go_on)
        self.assertEqual(process.returncode, 0, process.err)
        self.assertIn("1 run is in the journal, of which 1 failed", process.err)
        self.assertEqual([run["status"] for run in self.runs()], ["complete", "complete"])
        self.assertFalse(os.path.exists(self.path("s.jsonl")))

    @cli.failed_jobs_end_at_once
    def test_builds_are_not_mixed_unless_allowed(self):
        other = self.another_build()
        program = self.program("changes", f'[ ! -e changed ] || exec {other} "$@"; touch changed')
        layouts = ("one", "two")
        process = self.sweep_of(program, "--repeats", "1", names=layouts)
        self.assertEqual(process.returncode, 2, process.err)
        self.assertIn("of another build of nearmetal", process.err)
        self.assertEqual((self.report("s.json")["status"], len(self.runs())), ("partial", 1))
        process = self.sweep_of(program, "--repeats", "2", "--resume", "s.jsonl", "--force",
                                "--allow-other-build", names=layouts)
        self.assertEqual(process.returncode, 0, process.err)
        mixed = "one: runs of several builds of nearmetal in one mean ("
        for out in (process.out, self.call("report", "s.json").out):
            self.assertIn(mixed, " ".join(out.split()))
        builds = [run["tool"]["build_id"] for run in self.runs()]
        self.assertEqual(builds[0], self.report("s.json")["tool"]["build_id"])
        self.assertNotEqual(builds[0], builds[1])
        self.assertEqual(self.call("validate", "s.json").returncode, 0)

    @cli.failed_jobs_end_at_once
    def test_a_journal_of_another_build_is_refused(self):
        too_large = (*cli.TINY_WORK, "--batch", "60000", "--repeats", "1", "--quiet")
        commands = {"s": ("sweep", "1x1x1", *too_large), "r": ("run", *too_large)}
        for name, command in commands.items():
            self.assertEqual(self.call(*command, "--output", name + ".json").returncode, 6)
        original, cli.EXECUTABLE = cli.EXECUTABLE, self.another_build()
        self.addCleanup(setattr, cli, "EXECUTABLE", original)
        for name, command in commands.items():
            go_on = (*command, "--resume", name + ".jsonl", "--output", name + "2.json",
                     "--keep-failed")
            self.assert_refused(self.call(*go_on), 2, name + ".jsonl is the journal of another build")
            process = self.call(*go_on, "--allow-other-build")
            self.assertEqual(process.returncode, 6, "kept, of the same plan: " + process.err)

    def named_build(self, script, *arguments):
        """A sweep of a build that a layout names: this one, behind a script."""
        jobs = [{"instances": [{"host": "localhost", "ranks": 1}]}]
        other = self.program("other", script)
        layouts = {"hosts": [{"name": "localhost", "gpus": 0}], "repeats": 2,
                   "layouts": [{"name": "old", "jobs": jobs, "executable": other}]}
        return other, self.sweep(self.write("layouts.json", json.dumps(layouts)), "--steps", "3",
                                 *arguments)

    def test_a_named_build_that_is_gone_or_another(self):
        other, process = self.named_build("rm other")
        self.assertEqual(process.returncode, 6, process.err)
        self.assertIn(f"'{other}' is no program that can be started here", process.err)
        self.assertIn("take failed runs again with: ", process.err)
        self.assertRegex(process.out, "old +1 +1 of 2 +[0-9]")
        self.assertEqual([run["status"] for run in self.runs()], ["complete", "failed"])
        go_on = ("--resume", "s.jsonl", "--force")
        other, process = self.named_build("", *go_on)
        self.assert_refused(process, 2, f"another build of {other} than lies there now",
                            "--allow-other-build")
        _, process = self.named_build("", *go_on, "--allow-other-build")
        self.assertEqual(process.returncode, 0, process.err)
        self.assertEqual([run["status"] for run in self.runs()], ["complete", "complete"])
        self.assertEqual(["different_builds" in [warning["code"] for warning in run["warnings"]]
                          for run in self.runs()], [True, False])

    def test_a_program_that_is_started_is_not_replaced_by_the_report(self):
        for output in ("other", "layouts.json"):
            other, process = self.named_build("", "--output", output, "--force")
            self.assert_refused(process, 2, f"{output} is read here")
            self.assertTrue(os.access(other, os.X_OK))

    @cli.failed_jobs_end_at_once
    def test_what_goes_on_has_its_options_before_the_layouts(self):
        too_large = (*cli.TINY_WORK, "--batch", "60000", "--repeats", "1")
        files = ("--output", "s.json")
        process = self.call("sweep", *too_large, *files, "--", "1x1x1")
        self.assertEqual(process.returncode, 6, process.err)
        told = shlex.split(process.err.partition("take failed runs again with: ")[2])[1:]
        self.assertEqual(told, ["sweep", *too_large, "--resume", "s.jsonl", *files, "--force",
                                "--", "1x1x1"])
        process = self.call(*told)
        self.assertEqual(process.returncode, 6, process.err)
        self.assertIn("1 run is in the journal", process.err)

    def started(self, is_there, *arguments, **options):
        """A sweep over a job of two ranks for each of which that holds, and they."""
        process = self.start("sweep", *cli.TINY_WORK, "--output", "s.json", "--repeats", "1",
                             "--duration", "600", "1x1x2", *arguments, **options)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)

        def both():
            ranks = ranks_below(process.pid)
            return ranks if len(ranks) == 2 and all(is_there(rank) for rank in ranks) else None

        ranks = cli.wait_until(both, 60)
        self.assertIsNotNone(ranks, "the ranks did not start")
        return process, ranks

    def test_a_full_disk_loses_no_figure(self):
        program = self.program("fills", "prlimit --pid $(ps -o ppid= -p $PPID) --fsize=4000")
        process = self.sweep_of(program, "--repeats", "2")
        self.assertEqual(process.returncode, 9, process.err)
        self.assertIn("s.jsonl cannot be written: File too large", process.err)
        self.assertIn("cannot write s.json: File too large", process.err)
        self.assertRegex(process.out, "one +1 +1 +[0-9]")
        with open(self.path("s.jsonl"), encoding="utf-8") as file:
            self.assertEqual(len(file.readlines()), 1, "and no part of a run")

    def test_a_run_that_the_journal_does_not_take_is_in_the_report(self):
        os.mkdir(self.path("out"))
        program = self.program("removes", "rm -rf out")
        os.mkdir(self.path("tmp"))
        layouts = {"layouts": [{"name": "one", "shape": "1x1x1"}], "repeats": 1,
                   "launcher": {"program": program}}
        process = self.call("sweep", self.write("layouts.json", json.dumps(layouts)), *cli.TINY_WORK,
                            "--steps", "3", "--output", "out/s.json",
                            env={**cli.clean_environment(), "TMPDIR": self.path("tmp")})
        self.assertEqual(process.returncode, 9, process.err)
        self.assertRegex(process.out, "one +1 +1 +[0-9]")
        elsewhere, = os.listdir(self.path("tmp"))
        self.assertIn(f"the report is in {self.path('tmp')}/{elsewhere} instead", process.err)
        self.assertEqual(self.report("tmp/" + elsewhere)["arms"][0]["runs"][0]["status"], "complete")

    @unittest.skipIf(os.geteuid() != 0, "root alone gives links away")
    def test_a_journal_follows_no_link_of_another_user(self):
        self.write("precious", "old")
        self.write("s.json", "a later report, which --force replaces")
        os.symlink("precious", self.path("s.jsonl"))
        os.lchown(self.path("s.jsonl"), 12345, 12345)
        self.assert_refused(self.sweep("1x1x1", "--force"), 9, "s.jsonl is a link of another user")
        with open(self.path("precious"), encoding="utf-8") as file:
            self.assertEqual(file.read(), "old")

    def left_in_the_end(self, files, ranks):
        """Of these and of temporary files, once all had time to go."""
        def left():
            return ([name for name in files if os.path.exists(name)] +
                    os.listdir(self.path("tmp")) + [rank for rank in ranks if alive(rank)])

        cli.wait_until(lambda: not left(), 30)
        return left()

    def test_nothing_is_left_of_what_is_killed(self):
        for victim in ("sweep", "mpirun"):
            os.mkdir(self.path("tmp"))
            process, ranks = self.started(shared_memory, env={**cli.clean_environment(),
                                                              "TMPDIR": self.path("tmp")})
            folder, = os.listdir(self.path("tmp"))
            shared = {name for rank in ranks for name in shared_memory(rank)}
            self.assertEqual(len(os.listdir(self.path("tmp/" + folder))), 1, "Open MPI's")
            killed = process.pid if victim == "sweep" else next(
                child for child in children_of(process.pid) if ranks_below(child))
            os.kill(killed, signal.SIGKILL)
            process.communicate(timeout=cli.limit(60))
            self.assertEqual(self.left_in_the_end(shared, ranks), [], victim)
            os.rmdir(self.path("tmp"))
            for name in ("s.json", "s.jsonl"):
                if os.path.exists(self.path(name)):
                    os.remove(self.path(name))

    def test_ctrl_c_stops_ranks_that_are_independent(self):
        process, _ = self.started(trains, "--update", "independent")
        process.send_signal(signal.SIGINT)
        error = process.communicate(timeout=cli.limit(60))[1]
        self.assertEqual(process.returncode, 130, error)
        run = self.runs()[0]
        self.assertEqual(run["status"], "partial")
        self.assertIn("interrupted", run["failure"])
        self.assertEqual([len(rank["step_seconds"]) > 0 for rank in run["ranks"]], [True, True])


if __name__ == "__main__":
    cli.main()
