"""scripts/quickstart.sh: what it builds for the machine, with stand-ins for CMake, nvcc and the driver."""

import os
import pathlib
import shutil
import subprocess

import cli

SCRIPTS = pathlib.Path(__file__).resolve().parents[2] / "scripts"
BUILT = "#!/bin/sh\nexit 0\n"

# Each call is kept; a configured folder is one with a program.
CMAKE = """#!/bin/bash
printf '%s\\n' "$*" >> calls
mkdir -p build && cp bin/built build/nearmetal
"""
# What that of CUDA 13.0 prints: no form like sm_90a.
NVCC = "#!/bin/sh\nprintf 'sm_%s\\n' 75 80 86 87 88 89 90 100 110 103 120 121\n"


class QuickstartScript(cli.CliTest):
    def setUp(self):
        super().setUp()
        for folder in ("build", "scripts"):
            os.makedirs(self.path(folder))
        for name in ("quickstart.sh", "common.sh"):
            shutil.copy(SCRIPTS / name, self.path("scripts"))
        with open(self.path("scripts/common.sh"), "a", encoding="utf-8") as common:
            common.write("gpu_visible() { [[ -e $root/gpu ]]; }\n")
        self.write_program("scripts/setup.sh", "#!/bin/sh\necho gpu\n")
        self.write_program("bin/cmake", CMAKE)
        self.write_program("bin/built", BUILT)
        self.write_program("bin/nvcc", NVCC)

    def gpus(self, answer, status=0):
        self.write("gpu", "")
        self.write_program("bin/nvidia-smi", f"#!/bin/sh\nprintf '{answer}'\nexit {status}\n")

    def quickstart(self, *arguments, expect=0, **environment):
        outside = {name: value for name, value in os.environ.items() if name != "CUDAARCHS"}
        environment = {**outside, "PATH": f"{self.path('bin')}:{os.environ['PATH']}",
                       "CUDACXX": self.path("bin/nvcc"), **environment}
        done = subprocess.run([self.path("scripts/quickstart.sh"), *arguments], cwd=self.folder,
                              env=environment, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, expect, done.stderr)
        return done.stderr

    def configured(self):
        """The arguments of the first call of CMake."""
        with open(self.path("calls"), encoding="utf-8") as calls:
            return calls.readline().split()

    def test_without_a_gpu_the_cpu_backend_alone(self):
        said = self.quickstart()
        self.assertEqual(self.configured(), ["--preset", "cpu-only", "-DNEARMETAL_TESTS=OFF"])
        self.assertIn("no GPU is visible: building the CPU backend alone; --all-chips", said)

    def test_all_chips_where_it_is_asked(self):
        for prepare in (lambda: None, lambda: self.gpus("9.0\\n")):
            prepare()
            self.quickstart("--all-chips")
            self.assertEqual(self.configured(), ["--preset", "gpu", "-DNEARMETAL_TESTS=OFF",
                                                 "-UCMAKE_CUDA_ARCHITECTURES"])
            os.remove(self.path("calls"))

    def test_the_chips_of_the_gpus_here(self):
        self.gpus("9.0\\n8.0\\n9.0\\n")
        self.assertIn("building for the GPUs here (80-real, 90a-real)", self.quickstart())
        self.assertIn("-DCMAKE_CUDA_ARCHITECTURES=80-real;90a-real", self.configured())

    def test_chips_are_added_to_those_of_the_folder(self):
        self.write("build/CMakeCache.txt", "CMAKE_CUDA_ARCHITECTURES:STRING=75-real;120\n")
        for answer, wanted in (("9.0\\n", "75-real;120;90a-real"), ("7.5\\n", "75-real;120")):
            self.gpus(answer)
            self.quickstart()
            self.assertIn(f"-DCMAKE_CUDA_ARCHITECTURES={wanted}", self.configured())
            os.remove(self.path("calls"))

    def test_every_chip_where_nobody_knows_this_one(self):
        for answer, status in (("No devices were found\\n", 6), ("[N/A]\\n", 0), ("99.0\\n", 0),
                               ("No devices were found\\n", 0), ("", 0)):
            with self.subTest(answer=answer, status=status):
                self.gpus(answer, status)
                self.assertIn("building for every chip", self.quickstart())
                self.assertIn("-UCMAKE_CUDA_ARCHITECTURES", self.configured())
                os.remove(self.path("calls"))

    def test_who_names_chips_has_chosen(self):
        self.gpus("9.0\\n")
        self.quickstart(CUDAARCHS="80")
        self.assertEqual(self.configured(), ["--preset", "gpu", "-DNEARMETAL_TESTS=OFF"])

    def test_a_folder_goes_on_building_what_it_builds(self):
        self.write("build/CMakeCache.txt", "NEARMETAL_CUDA:BOOL=ON\n")
        self.quickstart()
        self.assertEqual(self.configured(), ["--preset", "gpu"])

    def test_nothing_to_run_on(self):
        self.write_program("scripts/setup.sh", "#!/bin/sh\necho gpu-only\n")
        self.assertIn("no GPU is visible, and there is no oneDNN", self.quickstart(expect=1))
        self.assertFalse(os.path.exists(self.path("calls")))


if __name__ == "__main__":
    cli.main()
