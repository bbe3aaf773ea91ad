"""scripts/try_vm.sh with a guest whose CPU is emulated: what it finds, and what it leaves behind.

Ten minutes and more, so that it runs when asked for: ctest -C slow -R try_vm. Needs root, and QEMU and
debootstrap or the packages of Debian, else ends with 77. Its folder, with the guest's system, stays for
the next time.
"""

import json
import os
import pathlib
import pwd
import shutil
import signal
import subprocess
import sys
import time
import unittest

EXECUTABLE = pathlib.Path(sys.argv.pop(1)).resolve()
PROJECT = pathlib.Path(__file__).resolve().parent.parent
SCRIPT = PROJECT / "scripts" / "try_vm.sh"
FOLDER = EXECUTABLE.parent / "try_vm"
NEEDS = ("qemu-system-x86_64", "debootstrap", "mke2fs")


def call(*command):
    return subprocess.run([str(word) for word in command], text=True, capture_output=True, check=False)


def results():
    return {path for path in FOLDER.glob("2*Z") if path.is_dir()}


def guests():
    """Processes of QEMU that use a folder of this test."""
    found = []
    for line in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = line.read_bytes()
        except OSError:  # it has ended
            continue
        if words.startswith(b"qemu-system") and os.fsencode(FOLDER) in words:
            found.append(line.parent.name)
    return found


class Usage(unittest.TestCase):
    def test_wrong_options_are_refused_and_nothing_is_made(self):
        before = results()
        for words, said in ((["--launches", "2"], "at least 3"), (["--cpus", "x"], "a number"),
                            (["--duration"], "needs a value"), (["--frobnicate"], "unknown"),
                            (["--bundle", "/none"], "no file"), (["--build", "/"], "no program"),
                            (["--cpus", "99999"], "more than")):
            process = call(SCRIPT, "--folder", FOLDER, *words)
            self.assertEqual(process.returncode, 2, words)
            self.assertIn(said, process.stderr)
        self.assertEqual(results(), before)

    def test_help_has_examples(self):
        process = call(SCRIPT, "--help")
        self.assertEqual((process.returncode, process.stderr), (0, ""))
        self.assertIn("Examples:", process.stdout)


class EmulatedGuest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        before = results()
        cls.process = call(SCRIPT, "--build", EXECUTABLE.parent, "--emulate", "--launches", "3",
                           "--folder", FOLDER)
        if cls.process.returncode != 0:
            raise AssertionError(cls.process.stderr)
        (cls.made,) = results() - before

    def side(self, name):
        files = sorted(self.made.glob(f"{name}[0-9]*.json"))
        self.assertEqual(len(files), 3, name)
        return files

    def machines(self, name):
        return [json.loads(file.read_text())["environments"][0] for file in self.side(name)]

    def compared(self, base, new):
        process = call(EXECUTABLE, "compare", "--base", *self.side(base), "--new", *self.side(new),
                       "--allow-differ", "cpu_model", "--json")
        self.assertEqual(process.returncode, 0, process.stderr)
        return json.loads(process.stdout)

    def test_the_guest_is_slower_by_far_and_its_cpu_is_named_first(self):
        found = self.compared("host", "guest")
        (row,) = found["rows"]
        self.assertEqual(row["verdict"], "SLOWER")
        self.assertLess(row["difference"], -0.5)
        cause = found["explanations"][0]["causes"][0]
        self.assertEqual(cause["code"], "cpu_emulated", found["explanations"])

    def test_two_sets_of_runs_of_the_host_do_not_differ(self):
        (row,) = self.compared("host", "again")["rows"]
        self.assertIn(row["verdict"], ("EQUIVALENT", "INCONCLUSIVE"))

    def test_each_side_is_recognised(self):
        for machine in self.machines("guest"):
            self.assertEqual(machine["virtualisation"]["machine"], "vm")
            self.assertEqual(machine["virtualisation"]["hypervisor"], "qemu")
            self.assertEqual(machine["virtualisation"]["container"], "none")
        for host, container in zip(self.machines("host"), self.machines("container"), strict=True):
            self.assertNotEqual(host["virtualisation"]["hypervisor"], "qemu")
            self.assertEqual(container["virtualisation"]["container"], "unshare")
            self.assertEqual(container["virtualisation"]["machine"], host["virtualisation"]["machine"])
            self.assertEqual(container["cpu_model"], host["cpu_model"])

    def test_it_says_what_it_did_and_leaves_reports_and_pages_alone(self):
        self.assertIn("QEMU emulates the guest's CPU in software", self.process.stderr)
        self.assertEqual(guests(), [])
        for name in ("program", "turns.in", "turns.out", "job.sh"):
            self.assertFalse((self.made / name).exists(), name)
        for name in ("guest.html", "again.html", "container.html", "doctor_guest.txt"):
            self.assertTrue((self.made / name).exists(), name)


class Stopped(unittest.TestCase):
    def test_no_guest_outlives_it(self):
        for number, status in ((signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129),
                               (signal.SIGKILL, -9)):
            # Bash leaves a signal ignored that was so from the start, as SIGINT is of background jobs.
            with subprocess.Popen(
                    [SCRIPT, "--build", EXECUTABLE.parent, "--emulate", "--folder", FOLDER],
                    stderr=subprocess.PIPE, text=True,
                    preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)) as process:
                for line in process.stderr:
                    if "the guest is up" in line:
                        break
                (guest,) = guests()
                status = pathlib.Path(f"/proc/{guest}/status").read_text(encoding="utf-8")
                self.assertRegex(status, rf"(?m)^Uid:(\t{pwd.getpwnam('nobody').pw_uid}){{4}}$")
                process.send_signal(number)
                process.stderr.read()
            self.assertEqual(process.returncode, status)
            deadline = time.monotonic() + 20  # the kernel ends it, which takes a moment
            while guests() and time.monotonic() < deadline:
                time.sleep(0.1)
            self.assertEqual(guests(), [])


if __name__ == "__main__":
    at_hand = shutil.which("apt-get") or all(shutil.which(name) for name in NEEDS)
    if os.geteuid() != 0 or not at_hand:
        print("skipped: needs root, and apt-get or", ", ".join(NEEDS))
        sys.exit(77)
    unittest.main(verbosity=2)
