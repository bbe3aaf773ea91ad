"""scripts/bundle.sh: what it packs, in a checkout of its own with stand-ins for CMake and CPack."""

import os
import pathlib
import shutil
import subprocess

import cli

SCRIPTS = pathlib.Path(__file__).resolve().parents[2] / "scripts"

# Configuring writes the settings; each call is kept.
CMAKE = """#!/bin/bash
echo "cmake $*" >> calls
[[ $1 == --preset ]] || exit 0
folder=$4 build_type=Release flags=
for argument; do
  if [[ $argument == -DCMAKE_CXX_FLAGS=* ]]; then flags=${argument#*=}; fi
done
mkdir -p "$folder"
printf '%s\\n' "CMAKE_BUILD_TYPE:STRING=$build_type" "CMAKE_CXX_FLAGS:STRING=$flags" \\
  "NEARMETAL_CPU:BOOL=ON" > "$folder/CMakeCache.txt"
"""
CPACK = """#!/bin/bash
echo "cpack $*" >> calls
mkdir -p "${@: -1}"
touch "${@: -1}/nearmetal.tar.gz"
"""


class BundleScript(cli.CliTest):
    def setUp(self):
        super().setUp()
        for name in ("bundle.sh", "common.sh"):
            os.makedirs(self.path("scripts"), exist_ok=True)
            shutil.copy(SCRIPTS / name, self.path("scripts"))
        self.write_program("scripts/setup.sh", "#!/bin/sh\necho cpu-only\n")
        self.write(".gitignore", "build*\nbin\ncalls\n")
        self.git("init", "--quiet")
        self.git("add", ".")
        self.git("commit", "--quiet", "-m", "first")
        self.write_program("bin/cmake", CMAKE)
        self.write_program("bin/cpack", CPACK)

    def git(self, *arguments):
        identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
        return subprocess.run(["git", *identity, *arguments], cwd=self.folder, check=True,
                              capture_output=True, text=True).stdout.strip()

    def made(self, flags=""):
        commit = self.git("rev-parse", "HEAD")
        self.write_program("build/nearmetal", f"#!/bin/sh\necho nearmetal 1\necho commit {commit}\n")
        self.write("build/CMakeCache.txt", "CMAKE_BUILD_TYPE:UNINITIALIZED=Release\n"
                   f"CMAKE_CXX_FLAGS:STRING={flags}\nNEARMETAL_CPU:BOOL=ON\n"
                   "NEARMETAL_TESTS:BOOL=ON\n")

    def calls(self, *arguments):
        environment = {**os.environ, "PATH": self.path("bin") + ":" + os.environ["PATH"]}
        process = subprocess.run(["bash", "scripts/bundle.sh", *arguments], cwd=self.folder,
                                 env=environment, capture_output=True, text=True, check=False,
                                 timeout=cli.limit(60))
        self.assertEqual(process.returncode, 0, process.stderr)
        self.assertTrue(os.path.exists(process.stdout.strip()), process.stdout)
        with open(self.path("calls"), encoding="utf-8") as file:
            calls = file.read()
        os.remove(self.path("calls"))
        return calls

    def assert_packed(self, folder, calls):
        self.assertIn(f"--config {self.path(folder)}/CPackConfig.cmake", calls)
        self.assertEqual("cmake --build" in calls, folder == "build-bundle", calls)

    def test_what_is_built_is_packed_where_it_serves(self):
        self.made()
        self.assert_packed("build", self.calls())
        self.assert_packed("build", self.calls("--deb", "-DCMAKE_CXX_FLAGS="))

    def test_else_it_is_built_anew(self):
        self.assert_packed("build-bundle", self.calls())
        self.made(flags="-march=native")
        self.assert_packed("build-bundle", self.calls())
        self.assert_packed("build", self.calls("-DCMAKE_CXX_FLAGS=-march=native"))
        self.made()
        self.write(".gitignore", "build*\nbin\ncalls\nother\n")
        self.assert_packed("build-bundle", self.calls())
        self.git("commit", "--quiet", "-am", "second")
        self.assert_packed("build-bundle", self.calls())
        self.made()
        self.assert_packed("build", self.calls())


if __name__ == "__main__":
    cli.main()
