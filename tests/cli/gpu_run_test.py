"""A run whose kernels are not known yet, on a GPU. Exit 77 without one."""

import glob
import unittest

import cli

WORK = ["run", "--device", "cuda", "--batch", "32", "--duration", "1", "--quiet", "--force",
        "--output", "report.json", "--plan-cache"]


@unittest.skipUnless(glob.glob("/proc/driver/nvidia/gpus/*"), "there is no GPU")
class GpuRun(cli.CliTest):
    def median_step(self, cache):
        process = self.call(*WORK, cache)
        self.assertEqual(process.returncode, 0, process.err)
        run = self.report()["arms"][0]["runs"][0]
        return run["ranks"][0]["step_time"]["median_seconds"]

    def test_is_as_fast_when_it_times_kernels_as_when_it_finds_them_chosen(self):
        for cache in ("a", "b"):
            timed_here = self.median_step(cache)
            found_chosen = self.median_step(cache)
            self.assertLess(timed_here / found_chosen, 1.01)

    def test_lists_what_the_kernels_of_a_step_read_and_leave(self):
        process = self.call("micro", "--device", "cuda", "--model", "resnet18", "--batch", "2",
                            "--list", "step/backward/layer4.1.conv2")
        self.assertEqual(process.returncode, 0, process.err)
        self.assertRegex(process.out, r"\n    backward convolution \[layer4.1.conv2\] x=.* -> ")


if __name__ == "__main__":
    cli.main()
