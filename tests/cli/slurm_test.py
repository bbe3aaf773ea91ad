"""A real Slurm of two nodes, with real ranks on their CPUs: the script of `plan`, srun, and a job that is
cancelled."""

import unittest

import cli
from slurm_hosts import WHY_NOT, WORK, SlurmTest


@unittest.skipIf(WHY_NOT, "no Slurm here: " + WHY_NOT)
class Slurm(SlurmTest):
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

    def test_srun_joins_ranks_by_pmix(self):
        process = self.slurm("srun", "--nodes=2", "--ntasks=2", "--mpi=pmix", cli.EXECUTABLE, "run", *WORK,
                             "--steps", "3", "--output", "r.json")
        self.assertEqual(process.returncode, 0, process.stderr + self.log())
        self.assertEqual(self.hosts_of("r.json"), ["host-a", "host-b"])
        self.assertTrue(self.report("r.json")["arms"][0]["runs"][0]["proof"]["sums_exact"])

    def test_a_job_that_is_cancelled_keeps_what_it_measured(self):
        self.assert_cancelled_keeps()


if __name__ == "__main__":
    cli.main()
