"""The image of scripts/container/Containerfile, for CPUs: built on a Debian made here, and run.

Half an hour, so that it runs when asked for: ctest -C slow -R container. Takes what is committed. Needs
root, buildah and debootstrap, else ends with 77: with Debian's packages no registry is asked. Both
stages are of the same Debian; what Apptainer would run are the same scripts, which is held by a test.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

PROJECT = pathlib.Path(__file__).resolve().parent.parent
FOLDER = pathlib.Path(sys.argv.pop(1)).resolve()  # for logs and images
RELEASE = "bookworm"
BASE, IMAGE = "localhost/nearmetal-base", "localhost/nearmetal-test"
TINY = ["--device", "cpu", "--model", "resnet20", "--image-size", "32", "--batch", "2", "--threads",
        "1", "--steps", "3", "--warmup", "1"]


def mirror():
    """From where this machine has its packages."""
    lines = subprocess.run(["apt-get", "indextargets", "--format", "$(RELEASE) $(REPO_URI)",
                            "Created-By: Packages"], text=True, capture_output=True, check=False)
    found = re.search(rf"^{RELEASE} (\S+)$", lines.stdout, re.M)
    return found[1] if found else None


def call(*command, log=None):
    """Ends the test with what the command said where it fails; its output."""
    process = subprocess.run([str(word) for word in command], text=True, capture_output=True,
                             stdin=subprocess.DEVNULL, check=False)
    if log:
        (FOLDER / log).write_text(process.stdout + process.stderr, encoding="utf-8")
    if process.returncode != 0:
        raise AssertionError(f"{command}: {process.stdout[-2000:]}{process.stderr[-2000:]}")
    return process.stdout


def buildah(*arguments, log=None):
    return call("buildah", "--root", FOLDER / "storage", "--runroot", FOLDER / "run",
                "--storage-driver", "vfs", *arguments, log=log)


def make_image():
    """A base by debootstrap, and the image on it, from a copy of what is committed; its commit.

    One stage names the base by its tag, the other by its digest.
    """
    with tempfile.TemporaryDirectory(dir=FOLDER) as made:
        call("unshare", "--mount", "debootstrap", "--force-check-gpg", "--variant=minbase", RELEASE,
             made + "/base", mirror(), log="debootstrap.log")
        call("git", "clone", "--quiet", "--no-hardlinks", PROJECT, made + "/source")
        container = buildah("from", "scratch").strip()
        buildah("add", "--quiet", container, made + "/base", "/")
        buildah("commit", "--quiet", "--rm", container, BASE)
        digest = buildah("inspect", "--type", "image", "--format", "{{.FromImageDigest}}", BASE).strip()
        buildah("build", "--isolation", "chroot", "--build-arg", "build_base=" + BASE, "--build-arg",
                f"run_base={BASE}@{digest}", "--file", made + "/source/scripts/container/Containerfile", "--tag",
                IMAGE, made + "/source", log="build.log")
        return call("git", "-C", made + "/source", "rev-parse", "HEAD").strip()


class Image(unittest.TestCase):
    """One container for all tests; its processes end with the command that started them."""

    @classmethod
    def setUpClass(cls):
        shutil.rmtree(FOLDER, ignore_errors=True)
        FOLDER.mkdir(parents=True)
        cls.commit = make_image()
        cls.container = buildah("from", IMAGE).strip()
        cls.root = pathlib.Path(buildah("mount", cls.container).strip())

    @classmethod
    def tearDownClass(cls):
        for folder in ("storage", "run"):
            shutil.rmtree(FOLDER / folder, ignore_errors=True)

    def run_in(self, script):
        """What the script prints, by way of a file: on a busy machine buildah 1.28 may lose it."""
        buildah("run", "--isolation", "chroot", self.container, "--", "bash", "-euc",
                f"exec >/tmp/said\n{script}")
        return (self.root / "tmp/said").read_text(encoding="utf-8")

    def test_the_program_is_of_this_commit_and_not_of_root(self):
        self.assertIn(f"commit {self.commit}\n", self.run_in("nearmetal --version"))
        self.assertEqual(self.run_in("id -u; id -un").split(), ["1000", "nearmetal"])
        self.assertEqual(self.run_in("test -w /opt/nearmetal/bin || echo no").strip(), "no")
        config = json.loads(buildah("inspect", "--type", "image", IMAGE))["OCIv1"]["config"]
        self.assertEqual((config["User"], config["WorkingDir"], config["Cmd"]),
                         ("nearmetal", "/home/nearmetal", ["nearmetal", "doctor"]))

    def test_it_trains(self):
        report = json.loads(self.run_in(" ".join(["nearmetal", "run", *TINY, "--json"])))
        self.assertEqual((report["status"], len(report["arms"][0]["runs"])), ("complete", 1))

    def test_ranks_are_started_by_mpirun(self):
        words = ["mpirun", "-n", "2", "--oversubscribe", "nearmetal", "run", *TINY, "--json"]
        report = json.loads(self.run_in(" ".join(words)))
        self.assertEqual(report["arms"][0]["runs"][0]["world_size"], 2)

    def test_its_user_lets_ranks_of_other_pods_in(self):
        # As the operator mounts the keys of a job and starts the workers.
        said = self.run_in("""
            cd ~/.ssh
            ssh-keygen -q -t ecdsa -N '' -f id_rsa && cp id_rsa.pub authorized_keys
            /usr/sbin/sshd -De &
            trap "kill $!" EXIT
            for try in 1 2 3 4 5 6 7 8 9 10; do ssh localhost true && break; sleep 0.5; done
            ssh -o BatchMode=yes localhost 'id -un; nearmetal --version; command -v orted taskset'""")
        self.assertRegex(said, r"^nearmetal\nnearmetal 0\..*\n(.*\n)+/usr/bin/orted\n/usr/bin/taskset")

    def test_the_definition_for_apptainer_has_the_same_steps(self):
        steps = {}
        for name in ("Containerfile", "nearmetal.def"):
            text = (PROJECT / "scripts/container" / name).read_text(encoding="utf-8")
            steps[name] = (re.findall(r"/(\w+\.sh)", re.sub("#.*", "", text)),
                           re.findall(r"(\w+_base=\S+)", text))
        self.assertEqual(set(steps["Containerfile"][0]), set(steps["nearmetal.def"][0]))
        self.assertEqual(steps["Containerfile"][1], steps["nearmetal.def"][1])


if __name__ == "__main__":
    if os.geteuid() != 0 or not (shutil.which("buildah") and shutil.which("debootstrap") and mirror()):
        print("skipped: it takes root, buildah, debootstrap and Debian's packages")
        sys.exit(77)
    unittest.main()
