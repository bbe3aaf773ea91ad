"""rerun and gate --rerun of what mpirun starts: several ranks and jobs, and builds of layouts."""

import copy
import json
import os

import cli
from comparing import CompareTest


class RerunOfRanks(CompareTest):
    def test_jobs_and_ranks_are_started_as_they_ran(self):
        layouts = {"1x1x2": [2], "2*(1x1x1)": [1, 1]}  # ranks of each job
        made = self.call("sweep", *cli.TINY_WORK, "--steps", "60", "--repeats", "1", *layouts,
                         "--output", "old.json")
        self.assertEqual(made.returncode, 0, made.err)
        sweep = self.report("old.json")
        process = self.call("rerun", "old.json#1x1x2", "--runs", "1")
        self.assert_verdict(process, 0, "1x1x2", "1|1")
        self.assert_refused(self.call("rerun", "old.json#1x1x2", env={
            **cli.clean_environment(), "PATH": "/nonexistent"}), 8, "mpirun", "is not on PATH")
        jobs = {**sweep, "arms": copy.deepcopy(sweep["arms"][1:])}
        runs = jobs["arms"][0]["runs"]
        runs.append({**runs[0], "started_at": "2026-01-31T12:00:00Z"})
        self.write("jobs.json", json.dumps(jobs))
        process = self.call("gate", "jobs.json", "old.json#2*(1x1x1)", "--rerun", "1",
                            "--min-runs", "2")
        self.assertIn("2|2", process.out, process.err)
        for number, (name, ranks) in enumerate(layouts.items(), 1):
            [arm] = self.report(f"rerun-{number}-of-old.report.json")["arms"]
            [run] = arm["runs"]
            jobs = run["jobs"] or [{"ranks": run["world_size"]}]
            self.assertEqual((arm["name"], [job["ranks"] for job in jobs]), (name, ranks))
        self.assertEqual(self.call("validate", ".").returncode, 0)
        sweep["environments"].append({**sweep["environments"][0], "host_name": "far"})
        sweep["arms"][0]["runs"][0]["ranks"][1]["environment"] = 1
        self.write("far.json", json.dumps(sweep))
        for hosts in [], ["--hosts", "a:0"]:
            self.assert_refused(self.call("rerun", "far.json#1x1x2", *hosts), 2, "2 hosts",
                                ", far)", "--hosts")

    def test_a_build_that_a_layout_named_is_started_where_it_is_named_now(self):
        script = f'#!/bin/sh\necho >>started\nexec {cli.EXECUTABLE} "$@"\n'
        self.write_program("other", script)
        other = self.path("other")
        jobs = [{"instances": [{"host": "localhost", "ranks": 1}]}]
        layouts = {"hosts": [{"name": "localhost", "gpus": 0}], "repeats": 1, "layouts": [
            {"name": "old", "jobs": jobs, "executable": other},
            {"name": "new", "jobs": jobs, "executable": cli.EXECUTABLE}]}
        made = self.call("sweep", self.write("layouts.json", json.dumps(layouts)), *cli.TINY_WORK,
                         "--steps", "3", "--output", "ex.json")
        self.assertEqual(made.returncode, 0, made.err)
        base = self.report("ex.json")
        runs = base["arms"][0]["runs"]
        runs.append({**runs[0], "started_at": "2026-01-31T12:00:00Z"})
        self.write("base.json", json.dumps(base))
        gate = ["gate", "base.json#old", "--rerun", "1", "--min-runs", "2"]
        for repeat in (["rerun"], gate):
            self.assert_refused(self.call(*repeat, "ex.json#old"), 2, "another build than this one",
                                f"'{other}'", "--program FILE")
        self.assertEqual(os.path.getsize(self.path("started")), 1)
        process = self.call("rerun", "ex.json#old", "--runs", "1", "--program", "other")
        self.assert_verdict(process, 0, "1|1")
        process = self.call(*gate, "ex.json#old", "--program", other)
        self.assertIn("2|2", process.out, process.err)
        self.assertEqual(os.path.getsize(self.path("started")), 3)
        [then, this], [now] = (self.report(name)["arms"]
                               for name in ("ex.json", "rerun-1-of-ex.report.json"))
        self.assertEqual(now["executable"], then["executable"])
        variables = self.report("rerun-1-of-ex.report.json")["environments"][0]["variables"]
        self.assertIn("OMPI_MCA_btl", variables, "under mpirun, as it ran")
        self.assert_verdict(self.call("rerun", "ex.json#new", "--runs", "1"), 0, "1|1")
        self.assertEqual(this["executable"],
                         self.report("rerun-3-of-ex.report.json")["arms"][0]["executable"])
        self.write("other", script + "\n")
        self.assert_refused(self.call("rerun", "ex.json#old", "--program", "./other"), 2,
                            f"{other} is another build than the one that ran")
        self.assert_refused(self.call("rerun", "ex.json#new", "--program", other), 2,
                            f"{other} is another build than the one that ran")
        os.remove(other)
        self.assert_refused(self.call("rerun", "ex.json#old", "--program", other), 2,
                            f"'{other}' is no program")
        self.assertEqual(os.path.getsize(self.path("started")), 3)


if __name__ == "__main__":
    cli.main()
