"""A real Slurm of two nodes, with real ranks on their CPUs: the script of `plan`, srun, allocations, and
jobs that are ended before their time."""

import os
import pathlib
import unittest

import cli
from slurm_hosts import WHY_NOT, SlurmTest

WORK = ("--model", "resnet20", "--image-size", "32", "--classes", "10", "--batch", "2", "--threads", "1",
        "--warmup", "1")


@unittest.skipIf(WHY_NOT, "no Slurm here: " + WHY_NOT)
class Slurm(SlurmTest):
    def reports(self):
        return sorted(name for name in os.listdir(self.folder) if ".report.json" in name)

    def hosts_of(self, name):
        """Of each rank."""
        report = self.report(name)
        environments = [environment["host_name"] for environment in report["environments"]]
        return [environments[rank["environment"]] for rank in report["arms"][0]["runs"][0]["ranks"]]

    def write_script(self, *options):
        process = self.slurm(cli.EXECUTABLE, "plan", *options, *WORK, "--format", "slurm",
                             "--output", "job.sbatch", "--force")
        self.assertEqual(process.returncode, 0, process.stderr)

    def job_log(self):
        return pathlib.Path(self.path("job.log")).read_text(encoding="utf-8")

    def trains(self):
        """A rank on host-b has computed more than what comes before the first step."""
        return any(cli.cpu_seconds(pid) > 2 for pid in self.processes_on("host-b"))

    def test_the_script_of_a_plan_runs_in_an_allocation(self):
        self.write_script("2x1x1", "1x1x1", "--hosts", "2*0", "--steps", "3", "--repeats", "1")
        process = self.slurm("sbatch", "--wait", "--output=job.log", "job.sbatch")
        self.assertEqual(process.returncode, 0, self.job_log() + self.log())
        self.assertEqual(self.reports(), ["1-2x1x1-run1.report.json", "2-1x1x1-run1.report.json"])
        self.assertEqual(self.hosts_of("1-2x1x1-run1.report.json"), ["host-a", "host-b"])
        self.assertEqual(self.hosts_of("2-1x1x1-run1.report.json"), ["host-a"])
        shown = self.call("report", *self.reports())
        self.assertEqual(shown.returncode, 0, shown.err)
        self.assertIn("2x1x1", shown.out)

    def test_srun_joins_ranks_by_pmix(self):
        process = self.slurm("srun", "--nodes=2", "--ntasks=2", "--mpi=pmix", cli.EXECUTABLE, "run", *WORK,
                             "--steps", "3", "--output", "r.json")
        self.assertEqual(process.returncode, 0, process.stderr + self.log())
        self.assertEqual(self.hosts_of("r.json"), ["host-a", "host-b"])
        self.assertTrue(self.report("r.json")["arms"][0]["runs"][0]["proof"]["sums_exact"])

    def test_a_job_that_is_cancelled_keeps_what_it_measured(self):
        self.write_script("2x1x1", "--hosts", "2*0", "--duration", "600", "--repeats", "1")
        for how in (["--signal=TERM", "--batch"], []):
            with self.subTest(how=how):
                self.slurm("sbatch", "--output=job.log", "job.sbatch")
                self.assertTrue(cli.wait_until(self.trains, 60), self.log())
                self.slurm("scancel", *how, "--user=root")
                self.assertTrue(cli.wait_until(
                    lambda: not self.slurm("squeue", "--noheader").stdout.strip(), 60), self.log())
                (name,) = self.reports()
                self.assertEqual(name, "1-2x1x1-run1.report.json", self.job_log())
                self.assertEqual(self.call("validate", name).returncode, 0)
                (run,) = self.report(name)["arms"][0]["runs"]
                os.remove(self.path(name))
                self.assertEqual(run["status"], "partial")
                self.assertGreater(run["window"]["steps"], 0)

    def test_a_sweep_here_runs_in_an_allocation_of_one_task(self):
        process = self.slurm("salloc", "--nodes=1", "--ntasks=1", cli.EXECUTABLE, "sweep", "1x1x2", *WORK,
                             "--steps", "3", "--repeats", "1", "--output", "s.json")
        self.assertEqual(process.returncode, 0, process.stderr)
        self.assertEqual(self.hosts_of("s.json"), ["host-a", "host-a"])

    def test_a_sweep_over_the_nodes_of_an_allocation(self):
        process = self.slurm("salloc", "--nodes=2", "--ntasks-per-node=1", cli.EXECUTABLE, "sweep", "2x1x1",
                             "--hosts", "host-a:0,host-b:0", *WORK, "--steps", "3", "--repeats", "1",
                             "--output", "s.json")
        self.assertEqual(process.returncode, 0, process.stderr)
        self.assertEqual(self.hosts_of("s.json"), ["host-a", "host-b"])


if __name__ == "__main__":
    cli.main()
