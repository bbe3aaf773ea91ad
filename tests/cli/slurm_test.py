"""A real Slurm of two nodes, with real ranks on their CPUs: srun, and a script of `plan` that is cancelled."""

import unittest

import cli
from slurm_hosts import WHY_NOT, WORK, SlurmTest


@unittest.skipIf(WHY_NOT, "no Slurm here: " + WHY_NOT)
class Slurm(SlurmTest):
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
