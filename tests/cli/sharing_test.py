"""sweep --fractions on a GPU: every way to share that needs no administrator, and how it ends."""

import glob
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import unittest

import cli

CONTROL = "nvidia-cuda-mps-control"
# Writes to where it has no memory, by the driver's API alone.
FAULT = r'''
import ctypes, sys
cuda = ctypes.CDLL("libcuda.so.1")
PTX = b""".version 7.0
.target sm_70
.address_size 64
.visible .entry fault() {
  .reg .u64 %a; .reg .u32 %v;
  mov.u64 %a, 16; mov.u32 %v, 1;
  st.global.u32 [%a], %v;
  ret;
}"""
def call(name, *arguments):
    status = getattr(cuda, name)(*arguments)
    if status: sys.exit(f"{name}: {status}")
device, context = ctypes.c_int(), ctypes.c_void_p()
module, function = ctypes.c_void_p(), ctypes.c_void_p()
call("cuInit", 0)
call("cuDeviceGet", ctypes.byref(device), 0)
call("cuCtxCreate_v2", ctypes.byref(context), 0, device)
call("cuModuleLoadData", ctypes.byref(module), PTX)
call("cuModuleGetFunction", ctypes.byref(function), module, b"fault")
call("cuLaunchKernel", function, 1, 1, 1, 1, 1, 1, 0, None, None, None)
print("status", cuda.cuCtxSynchronize())
'''


def wait_for(condition, seconds, what):
    until = time.monotonic() + seconds
    while not (found := condition()):
        if time.monotonic() > until:
            raise AssertionError(f"not within {seconds} s: {what}")
        time.sleep(0.1)
    return found


@unittest.skipUnless(os.path.exists("/proc/driver/nvidia/version"), "there is no GPU")
class Sharing(cli.CliTest):
    def sweep(self, *arguments, **options):
        return self.start("sweep", "--quiet", "--output", "s.json", "--repeats", "1", *arguments,
                          **options)

    def arms(self, *arguments):
        process = self.sweep("--duration", "1", "--warmup", "20", *arguments)
        out, err = process.communicate(timeout=cli.limit(280))
        self.assertEqual(process.returncode, 0, err)
        return out, {arm["name"]: arm for arm in self.report("s.json")["arms"]}

    def test_every_way_that_needs_no_administrator_runs(self):
        out, arms = self.arms("--fractions", "2")
        ways = ["alone", "2 jobs, serial", "2 jobs, time slices", "2 jobs, MPS",
                "2 jobs, MPS 50 percent", "2 jobs, SMs 50 percent", "alone, MPS 50 percent",
                "alone, SMs 50 percent"]
        self.assertEqual([name for name in ways if arms[name]["unsupported"]], [], out)
        environments = self.report("s.json")["environments"]

        def multiprocessors(name):
            return [environments[rank["environment"]]["gpus"][rank["gpu"]]["multiprocessors"]
                    for rank in arms[name]["runs"][0]["ranks"]]

        whole = multiprocessors("alone")[0]
        halves = multiprocessors("2 jobs, SMs 50 percent")
        self.assertEqual(halves, 2 * multiprocessors("alone, SMs 50 percent"))
        self.assertLessEqual(sum(halves), whole)
        self.assertGreater(sum(halves), 0.8 * whole)
        for monitoring in (rank["monitoring"] for arm in ways for rank in
                           arms[arm]["runs"][0]["ranks"]):
            watts = next(series["mean"] for series in monitoring["series"]
                         if series["name"] == "power_watts")
            seconds = arms["alone"]["runs"][0]["window"]["seconds"]  # of each, by its duration
            self.assertGreater(monitoring["joules"], 0.7 * watts * seconds)
        speed = {name: arms[name]["runs"][0]["throughput_images_per_second"] for name in ways}
        self.assertLess(speed["2 jobs, time slices"], speed["alone"])
        self.assertLess(speed["alone, SMs 50 percent"], 0.9 * speed["alone"])
        self.assertGreater(speed["2 jobs, SMs 50 percent"], 1.2 * speed["alone, SMs 50 percent"])

    def test_a_neighbour_costs_and_is_reported(self):
        out, arms = self.arms("--fractions", "2", "--neighbours", "copy")
        alone = arms["alone"]["runs"][0]["throughput_images_per_second"]
        for way in ("time slices", "MPS 50 percent", "SMs 50 percent"):
            run = arms[f"1 job, 1 copy, {way}"]["runs"][0]
            self.assertLess(run["throughput_images_per_second"], alone)
            self.assertGreater(run["neighbours"][0]["bytes_per_second"], 1e11)
        self.assertIn("What the neighbours did", out)

    def two_mps_jobs(self):
        """A sweep of two jobs, both of them under way, and the folder of its MPS daemon."""
        if shutil.which(CONTROL) is None:
            self.skipTest(f"there is no {CONTROL}")
        job = {"instances": [{"host": "localhost", "gpus": [0]}], "share": {"way": "mps"}}
        self.write("two.json", json.dumps({
            "layouts": [{"name": "two", "jobs": [job, job]}],
            "workload": {"model": "resnet18", "batch": 32, "duration": 60, "warmup": 20}}))
        os.mkdir(self.path("tmp"))
        process = self.sweep("two.json", env={**cli.clean_environment(), "TMPDIR": self.path("tmp")})
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)

        def daemon_of_two():
            for log in glob.glob(self.path("tmp/nearmetal-mps-*/out")):
                with open(log, encoding="utf-8", errors="replace") as file:
                    if file.read().count("is ACTIVE") >= 2:
                        return os.path.dirname(log)
            return None

        folder = wait_for(daemon_of_two, 60, "two clients of MPS")
        time.sleep(5)  # into their steps
        return process, folder

    def test_a_fault_of_another_client_ends_the_run_and_is_named(self):
        process, folder = self.two_mps_jobs()
        # Clients count the GPUs that the daemon sees, here one.
        client = {"CUDA_MPS_PIPE_DIRECTORY": f"{folder}/pipe", "CUDA_VISIBLE_DEVICES": "0"}
        fault = subprocess.run(
            [sys.executable, "-c", FAULT], stdout=subprocess.PIPE, text=True, check=True,
            timeout=cli.limit(30), env={**os.environ, **client})
        self.assertNotEqual(fault.stdout, "status 0\n")
        _, err = process.communicate(timeout=cli.limit(60))
        self.assertEqual(process.returncode, 6, err)
        self.assertRegex(err, r"the MPS server says: Client .* encountered a fatal GPU error")
        self.assertEqual(os.listdir(self.path("tmp")), [])

    def test_kill_9_leaves_nothing(self):
        process, folder = self.two_mps_jobs()
        process.send_signal(signal.SIGKILL)
        wait_for(lambda: not os.path.exists(folder), 20, "the daemon's folder goes")

        def users():
            found = []
            for path in glob.glob("/proc/[0-9]*/environ"):
                try:
                    with open(path, "rb") as file:
                        if self.path("tmp").encode() in file.read():
                            found.append(path)
                except OSError:
                    pass
            return found

        wait_for(lambda: not users(), 20, "the processes go")


if __name__ == "__main__":
    cli.main()
