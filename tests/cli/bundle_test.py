"""The packages of CPack: unpacked into an empty folder, run with an empty environment.

The second argument is the build folder.
"""

import glob
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import cli

BUILD = os.path.abspath(sys.argv[2])
MOST_BYTES = 60 * 1024 * 1024
# Than the reference, Debian 12.
NEWER_SYSTEM = [int(part) for part in
                os.confstr("CS_GNU_LIBC_VERSION").split()[-1].split(".")] > [2, 36]
SCRIPTS = pathlib.Path(__file__).resolve().parents[2] / "scripts"

# Libraries that every node has: the C and C++ run-time libraries, and on GPU nodes those of CUDA.
OF_THE_NODE = re.compile(r"(linux-vdso|ld-linux|lib(c|m|dl|rt|pthread|gcc_s|stdc\+\+|cudnn|cublasLt|nccl)\.)")


def run(*command, path="", **options):
    environment = {"PATH": path} if path else {}
    return subprocess.run(command, env=environment, capture_output=True, text=True,
                          timeout=cli.limit(100), **options)


def package(folder, generator):
    """Path of the package that CPack makes of the build folder."""
    subprocess.run(["cpack", "-G", generator, "--config", os.path.join(BUILD, "CPackConfig.cmake"),
                    "-B", folder], check=True, capture_output=True, timeout=cli.limit(100))
    (path,) = glob.glob(os.path.join(folder, "nearmetal-*.*"))
    return path


def files_below(root):
    return sorted(os.path.relpath(os.path.join(folder, name), root)
                  for folder, _, names in os.walk(root) for name in names)


class Bundle(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="nearmetal-bundle-")
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        cls.tarball = package(os.path.join(cls.folder, "tgz"), "TGZ")
        cls.node = os.path.join(cls.folder, "node")
        os.mkdir(cls.node)
        subprocess.run(["tar", "xzf", cls.tarball, "-C", cls.node], check=True)
        (cls.root,) = glob.glob(os.path.join(cls.node, "*"))
        cls.executable = os.path.join(cls.root, "bin", "nearmetal")

    def nearmetal(self, *arguments, **options):
        process = run(self.executable, *arguments, cwd=self.node, **options)
        self.assertEqual(process.returncode, 0, process.stdout + process.stderr)
        return process.stdout

    def test_holds_the_manual_and_completion(self):
        for name in ("man/man1/nearmetal.1", "bash-completion/completions/nearmetal",
                     "zsh/site-functions/_nearmetal", "fish/vendor_completions.d/nearmetal.fish"):
            self.assertGreater(os.path.getsize(os.path.join(self.root, "share", name)), 1000, name)

    def test_its_pages_and_layouts_are_those_of_an_installed_program(self):
        folder = pathlib.Path(self.root, "share/doc/nearmetal")
        pages = [folder / "README.md", *folder.glob("docs/**/*.md")]
        self.assertGreater(len(pages), 5)
        for page in pages:
            text = page.read_text("utf-8")
            self.assertNotIn("build/", text)
            for link in re.findall(r"\]\(([^)#:]+)\)", text):
                self.assertTrue((page.parent / link).exists(), f"{page}: {link}")
        steps = (folder / "docs/vm_against_bare_metal.md").read_text("utf-8")
        copied = re.findall(r"(?m)^ +cp (\S+)", steps)
        self.assertEqual(len(copied), 2)
        for layout in copied:
            self.assertTrue(pathlib.Path(self.root, layout).is_file(), layout)
        for layout in re.findall(r"(?m)^ +cp (\S+)", self.nearmetal("help", "vm")):
            self.assertTrue(pathlib.Path(layout).is_file(), layout)
        self.assertIn("\nnearmetal run ", pages[0].read_text("utf-8"))
        self.assertIn("vm0", self.nearmetal("plan", "dell_vms"))

    def needed_libraries(self, folder):
        return run(sys.executable, SCRIPTS / "needed_libraries.py", folder, "--check",
                   path=os.environ["PATH"])

    @unittest.skipIf(NEWER_SYSTEM, "what a newer system builds needs that system's libraries")
    def test_older_systems_have_the_libraries_that_it_needs(self):
        process = self.needed_libraries(self.root)
        self.assertEqual((process.returncode, process.stderr), (0, ""), process.stdout)
        self.assertRegex(process.stdout, r"(?m)^GLIBC_2\.\d+: .*\bnearmetal\b")
        self.assertIn("glibc 2.34", (SCRIPTS.parent / "README.md").read_text(encoding="utf-8"))

    def google_benchmark(self):
        """The system's, which refers to the newest libstdc++, and not the one in the bundle."""
        lines = run("/usr/bin/ldd", os.path.join(BUILD, "libnearmetal_micro.so")).stdout
        (path,) = re.findall(r"libbenchmark\S+ => (\S+)", lines)
        if "GLIBCXX_3.4.30" not in run("/usr/bin/objdump", "-p", path).stdout:
            self.skipTest("Google Benchmark needs no newer library here")
        return path

    def test_a_library_that_is_too_new_is_named(self):
        folder = os.path.join(self.folder, "renamed")
        os.mkdir(folder)
        shutil.copy(self.google_benchmark(), os.path.join(folder, "libother.so"))
        process = self.needed_libraries(folder)
        self.assertEqual(process.returncode, 1)
        self.assertRegex(process.stderr,
                         r"(?m)^libother.so needs GLIBCXX_3\.4\.\d\d, and may need 3\.4\.29$")

    def test_micro_runs_with_the_libraries_of_an_older_compiler(self):
        older = pathlib.Path(self.folder, "older")
        older.mkdir()
        lines = run("/usr/bin/ldd", self.google_benchmark()).stdout
        (library,) = re.findall(r"libstdc\+\+.so.6 => (\S+)", lines)
        data = pathlib.Path(library).read_bytes()
        # As if it had no such version.
        (older / "libstdc++.so.6").write_bytes(data.replace(b"\0GLIBCXX_3.4.30\0", b"\0GLIBCXX_0.0.00\0"))
        loaded = subprocess.run(
            [sys.executable, "-c", f"import ctypes; ctypes.CDLL({self.google_benchmark()!r})"],
            env={"LD_LIBRARY_PATH": str(older)}, capture_output=True, text=True, timeout=cli.limit(20))
        self.assertIn("version `GLIBCXX_3.4.30' not found", loaded.stderr)
        process = subprocess.run(
            [self.executable, "micro", "^cpu/quantum$", "--repetitions", "1", "--seconds", "0.01"],
            env={"LD_LIBRARY_PATH": str(older)}, cwd=self.node, capture_output=True, text=True,
            timeout=cli.limit(20))
        self.assertEqual(process.returncode, 0, process.stderr)
        self.assertIn("cpu/quantum", process.stdout)

    def test_micro_alone_needs_google_benchmark(self):
        modules = glob.glob(os.path.join(self.root, "lib/nearmetal/libnearmetal_*.so"))
        users = [os.path.basename(path) for path in [self.executable, *modules]
                 if "libbenchmark" in run("/usr/bin/objdump", "-p", path).stdout]
        self.assertEqual(users, ["libnearmetal_micro.so"])

    def test_is_small(self):
        self.assertLess(os.path.getsize(self.tarball), MOST_BYTES)

    def test_finds_its_libraries_beside_it(self):
        modules = glob.glob(os.path.join(self.root, "lib/nearmetal/libnearmetal_*.so"))
        for path in [self.executable, *modules]:
            if path.endswith("_mpi.so"):
                continue  # its MPI, and all that this needs, is the node's
            for line in run("/usr/bin/ldd", path).stdout.splitlines():
                name, _, place = line.strip().partition(" => ")
                if not OF_THE_NODE.match(os.path.basename(name)):
                    self.assertTrue(os.path.realpath(place.split(" (")[0]).startswith(
                        os.path.realpath(self.root) + "/"), f"{path}: {line}")

    def test_no_library_comes_from_the_current_folder(self):
        """Which an empty element stands for, also in libraries that others built."""
        for path in [self.executable, *glob.glob(os.path.join(self.root, "lib/nearmetal/*.so*"))]:
            listed = run("/usr/bin/objdump", "-p", path).stdout
            for places in re.findall(r"(?m)^ +R(?:UN)?PATH +(.*)$", listed):
                for place in places.split(":"):
                    self.assertRegex(place, r"^(/|\$ORIGIN(/|$))", f"{path}: {places}")
                    self.assertNotIn("nonexistent", place)

    def test_runs_with_nothing_else_on_the_path(self):
        self.assertRegex(self.nearmetal("--version"), r"(?m)^backend cpu: .*onednn \d")
        for name in ("a.json", "b.json"):
            self.nearmetal("run", "--device", "cpu", "--model", "resnet20", "--image-size", "32",
                           "--batch", "2", "--threads", "1", "--warmup", "1", "--steps", "3",
                           "--output", name)
        with open(os.path.join(self.node, "a.json"), encoding="utf-8") as file:
            self.assertEqual(json.load(file)["status"], "complete")
        self.assertIn("verdict", self.nearmetal("compare", "a.json", "b.json"))
        self.assertIn("the cpu backend works", run(self.executable, "doctor", cwd=self.node).stdout)

    def test_charts_are_drawn_without_another_program(self):
        report = os.path.join(os.path.dirname(__file__), "..", "data", "report-1.2.json")
        self.nearmetal("report", report, "--format", "html", "--output", "page.html")
        with open(os.path.join(self.node, "page.html"), encoding="utf-8") as file:
            self.assertIn("<svg", file.read())

    def test_the_debian_package_holds_the_same(self):
        deb = package(os.path.join(self.folder, "deb"), "DEB")
        root = os.path.join(self.folder, "root")
        subprocess.run(["dpkg-deb", "-x", deb, root], check=True)
        self.assertEqual(files_below(os.path.join(root, "usr")), files_below(self.root))
        fields = subprocess.run(["dpkg-deb", "-f", deb], check=True, capture_output=True, text=True)
        libraries = r"2\.\d+\), libstdc\+\+6" if NEWER_SYSTEM else r"2\.34\), libstdc\+\+6 \(>= 11\)"
        self.assertRegex(fields.stdout, rf"(?m)^Depends: libc6 \(>= {libraries}")

    def test_cmake_installs_the_same(self):
        prefix = os.path.join(self.folder, "prefix")
        subprocess.run(["cmake", "--install", BUILD, "--prefix", prefix, "--strip"], check=True,
                       capture_output=True)
        self.assertEqual(files_below(prefix), files_below(self.root))
        self.assertIn("onednn", run(os.path.join(prefix, "bin", "nearmetal"), "--version").stdout)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
