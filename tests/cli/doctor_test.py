"""doctor on the machine at hand, and on one whose driver's library is a stand-in."""

import json
import os
import shutil
import subprocess
import sys
import unittest

import jsonschema

import cli

# The folder of the stand-in for libnvidia-ml.so.1, and its answers.
FAKE_NVML = sys.argv.pop(2)
ANSWERS = os.path.join(os.path.dirname(__file__), "..", "data", "nvml", "constructed_two_h200.txt")


class Doctor(cli.CliTest):
    def findings(self, *arguments, **options):
        process = self.call("doctor", "--json", *arguments, **options)
        document = json.loads(process.out)
        schema = json.loads(self.call("schema", "doctor").out)
        jsonschema.Draft202012Validator.check_schema(schema)
        jsonschema.validate(document, schema)
        blockers = [f["code"] for f in document["findings"] if f["severity"] == "blocker"]
        self.assertEqual(process.returncode, 8 if blockers else 0, process.err)
        self.assertEqual(document["exit_code"], process.returncode)
        return {finding["code"]: finding for finding in document["findings"]}

    def test_the_text_ends_with_the_verdict(self):
        process = self.call("doctor")
        self.assertIn(f"(exit {process.returncode})", process.out.splitlines()[-1])
        self.assertIn("verdict:", process.out.splitlines()[-1])

    def test_a_filter_of_system_calls_that_mpi_feels_is_named(self):
        # As Docker's profile for kernels before 4.8 has it: man 2 seccomp.
        refusing = """if True:
            import ctypes, os, struct, sys
            PROCESS_VM_READV, ALLOW, REFUSE = 310, 0x7fff0000, 0x00050000 | 1  # EPERM; of x86-64
            steps = [(0x20, 0, 0, 0), (0x15, 0, 1, PROCESS_VM_READV), (0x06, 0, 0, REFUSE), (0x06, 0, 0, ALLOW)]
            code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
            program = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(steps), ctypes.addressof(code)))
            libc = ctypes.CDLL(None)
            assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program, 0, 0) == 0
            os.execv(sys.argv[1], sys.argv[1:])"""
        command = [sys.executable, "-c", refusing, cli.EXECUTABLE, "doctor", "--json"]
        process = subprocess.run(command, cwd=self.folder, env=cli.clean_environment(), capture_output=True,
                                 text=True, timeout=cli.limit(60), check=False)
        codes = [finding["code"] for finding in json.loads(process.stdout)["findings"]]
        self.assertIn("no_cross_memory_attach", codes)
        self.assertNotIn("no_cross_memory_attach", self.findings())

    @unittest.skipUnless(shutil.which("mpirun"), "there is no mpirun")
    def test_mpirun_starts_two_ranks(self):
        self.assertEqual(self.findings()["mpi"]["seen"], "mpirun started two ranks")

    def test_a_layout_file_of_this_machine_is_checked_against_it(self):
        layouts = {"hosts": [{"name": "localhost", "gpus": 0}],
                   "layouts": [{"name": "one", "shape": "1x1x1"}]}
        found = self.findings(self.write("layouts.json", json.dumps(layouts)))
        self.assertEqual(found["layout"]["severity"], "ok", found["layout"])
        self.assertEqual(found["network_untried"]["severity"], "note")
        self.assertIn("backend", found, "and the machine was looked at")

    def test_a_layout_in_short_is_for_plan(self):
        self.assert_refused(self.call("doctor", "1x1x2"), 2, "`nearmetal plan '1x1x2'`")

    def test_what_a_layout_file_leaves_out_here_is_noted(self):
        instance = {"instances": [{"host": "localhost"}]}
        layouts = {"hosts": [{"name": "localhost", "gpus": 0}],
                   "layouts": [{"name": "alone", "jobs": [{**instance, "share": {"way": "alone"}}]},
                               {"name": "MPS", "jobs": [{**instance, "share": {"way": "mps"}}]}]}
        found = self.findings(self.write("layouts.json", json.dumps(layouts)))
        self.assertEqual(found["layout"]["severity"], "ok", found["layout"])
        self.assertIn("(1 layout)", found["layout"]["seen"])
        self.assertIn("MPS is left out: there is no GPU", found["layout_left_out"]["seen"])

    def test_what_a_layout_file_asks_for_and_is_not_there_blocks(self):
        machine = json.loads(self.tiny("--steps", "1", "--json").out)["environments"][0][
            "virtualisation"]["machine"]
        other = "bare-metal" if machine == "vm" else "vm"
        layouts = {"layouts": [{"name": "wrong", "shape": "1x1x1",
                                "expect": {"environment": other}}]}
        found = self.findings(self.write("layouts.json", json.dumps(layouts)))
        self.assertEqual(found["layout"]["severity"], "blocker")
        self.assertIn("/layouts/0/expect: --expect-environment", found["layout"]["seen"])
        layouts = {"hosts": [{"name": "localhost", "gpus": 64}],
                   "layouts": [{"name": "many", "shape": "1x1x64"}]}
        found = self.findings(self.write("layouts.json", json.dumps(layouts)))
        self.assertIn("64 GPUs", found["layout"]["seen"])

    def test_a_link_that_is_not_as_claimed_blocks(self):
        # A network in which no machine has an address.
        layouts = {"launcher": {"network": "240.1.2.0/24"},
                   "layouts": [{"name": "one", "shape": "1x1x1",
                                "expect": {"link": {"rate": "10G"}}}]}
        file = self.write("layouts.json", json.dumps(layouts))
        found = self.findings(file)
        self.assertEqual(found["layout"]["severity"], "blocker")
        self.assertIn("/layouts/0/expect: --expect-link 10G,240.1.2.0/24", found["layout"]["seen"])
        process = self.call("sweep", file, "--output", "s.json", "--repeats", "1")
        self.assertEqual(process.returncode, 10, process.err)
        self.assertIn("/layouts/0/expect/link: --expect-link", process.err)

    def test_vgpus_that_are_no_peers_are_a_warning_before_a_job_starts(self):
        share = {"way": "vgpu", "profile": "A100-20C"}
        layouts = {"hosts": [{"name": "vm0", "gpus": 2}], "layouts": [
            {"name": "two parts", "jobs": [
                {"instances": [{"host": "vm0", "gpus": [0, 1]}], "share": share}]}]}
        file = self.write("layouts.json", json.dumps(layouts))
        process = self.call("plan", file)
        self.assertEqual(process.returncode, 0, process.err)
        self.assertIn("'two parts' exchanges gradients among vGPUs A100-20C", process.err)
        self.assertEqual(self.findings(file)["vgpu_peers_part"]["severity"], "warning")

    def test_a_file_that_is_no_layout_file_is_exit_2(self):
        self.assert_refused(self.call("doctor", "missing.json"), 2, "missing.json")
        self.assert_refused(self.call("doctor", self.write("empty.json", "{}")), 2, "/layouts")

    def test_a_missing_mpirun_blocks_sweeps_before_the_first(self):
        environment = {**cli.clean_environment(), "PATH": self.folder}
        layouts = self.write("layouts.json", json.dumps(
            {"hosts": [{"name": "localhost", "gpus": 0}], "layouts": [{"shape": "1x1x1"}]}))
        self.assertEqual(self.findings(layouts, env=environment)["no_mpi"]["severity"], "blocker")
        process = self.call("sweep", layouts, "--output", "s.json", env=environment)
        self.assert_refused(process, 8, "mpirun", "is not on PATH")
        self.assertEqual(os.listdir(self.folder), ["layouts.json"])

    def test_an_mpirun_that_fails_blocks(self):
        self.write("mpirun", "#!/bin/sh\n[ \"$1\" = --version ] && exit 0\necho no slots; exit 1\n")
        os.chmod(self.path("mpirun"), 0o755)
        environment = {**cli.clean_environment(), "PATH": self.folder + ":" + os.environ["PATH"]}
        self.assertIn("no slots", self.findings(env=environment)["mpi_launch"]["seen"])

    def test_constructed_gpus_are_seen_through_nvml(self):
        environment = {**cli.clean_environment(), "LD_LIBRARY_PATH": FAKE_NVML,
                       "FAKE_NVML_ANSWERS": ANSWERS}
        found = self.findings(env=environment)
        self.assertIn("1 of 3 NVLinks are down", found["nvlink_down"]["seen"])
        text = self.call("doctor", env=environment).out
        self.assertRegex(text, r"0: H200 1B:00\.0 +5 x16 .* X +NVLink")
        document = json.loads(self.call("doctor", "--json", env=environment).out)
        self.assertEqual([gpu["pci_id"] for gpu in document["gpus"]],
                         ["00000000:1B:00.0", "00000000:43:00.0"])
        self.assertEqual([nic["name"] for nic in document["rdma"]],
                         sorted(os.listdir("/sys/class/infiniband"))
                         if os.path.isdir("/sys/class/infiniband") else [])
        self.assertIn("GPU 0", found["gpu_in_use"]["seen"])


if __name__ == "__main__":
    cli.main()
