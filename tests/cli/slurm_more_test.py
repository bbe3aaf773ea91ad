"""More of a real Slurm of two nodes: scripts to their end, arrays, allocations of sweeps, a signal to the
batch script alone.

Half a minute, so that it runs when asked for: ctest -C slow -R slurm_more.
"""

import unittest

import cli
from slurm_hosts import WHY_NOT, WORK, SlurmTest


@unittest.skipIf(WHY_NOT, "no Slurm here: " + WHY_NOT)
class MoreOfSlurm(SlurmTest):
    def test_the_script_of_a_plan_runs_in_an_allocation(self):
        self.write_script("2x1x1", "1x1x1", "--hosts", "2*0", "--steps", "3", "--repeats", "1")
        process = self.slurm("sbatch", "--wait", "--output=job.log", "job.sbatch")
        self.assertEqual(process.returncode, 0, self.job_log() + self.log())
        both, one = self.reports()
        self.assertEqual(self.hosts_of(both), ["host-a", "host-b"])
        self.assertEqual(self.hosts_of(one), ["host-a"])
        shown = self.call("report", both, one)
        self.assertEqual(shown.returncode, 0, shown.err)
        self.assertIn("2x1x1", shown.out)

    def test_a_task_of_an_array_does_its_repeat_by_srun(self):
        self.write_script("2x1x1", "--hosts", "2*0", "--steps", "3", "--repeats", "2", starter="srun")
        process = self.slurm("sbatch", "--wait", "--array=2", "--output=job.log", "job.sbatch")
        self.assertEqual(process.returncode, 0, self.job_log() + self.log())
        self.assertEqual(self.reports(), ["1-2x1x1-run2.report.json"])
        self.assertEqual(self.hosts_of(self.reports()[0]), ["host-a", "host-b"])

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

    def test_a_script_that_gets_the_signal_alone_keeps_what_it_measured(self):
        self.assert_cancelled_keeps("--signal=TERM", "--batch")


if __name__ == "__main__":
    cli.main()
