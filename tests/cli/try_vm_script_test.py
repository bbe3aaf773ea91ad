"""What scripts/try_vm.sh starts, with programs in the place of debootstrap and QEMU that note how they
are called; tests/try_vm.py boots a guest."""

import os
import pathlib
import pwd
import subprocess
import tarfile
import unittest

import cli

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "try_vm.sh"
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
# What they say is in the log of each.
FAKES = {
    "debootstrap": """#!/bin/bash
printf '%s\\n' "$@"
mkdir -p "${@: -2:1}/sbin"
touch "${@: -2:1}"/{vmlinuz,initrd.img}
""",
    "gpgv": "#!/bin/bash\n",
    "mke2fs": """#!/bin/bash
touch "${@: -2:1}"
""",
    "qemu-system-x86_64": """#!/bin/bash
exec >&2
echo "user $(id -u), group $(id -g), others $(id -G)"
printf '%s\\n' "$@"
grep NoNewPrivs /proc/self/status
for file in /mnt/system/{vmlinuz,initrd.img,disk} "$TMPDIR"/../program/bin/nearmetal; do
  cat "$file" && echo "reads $(basename "$file")"
done
touch "$TMPDIR/new" && echo "writes $(basename "$TMPDIR")"
touch "$TMPDIR/../new" || echo "writes nothing else"
exit 1
""",
}


def why_not():
    if os.geteuid() != 0:
        return "it takes root"
    if not os.path.exists(KEYRING):
        return "no keyring of Debian here"
    process = subprocess.run(["unshare", "--mount", "--pid", "--fork", "true"], capture_output=True,
                             check=False)
    return process.stderr.decode().strip() if process.returncode != 0 else ""


class TryVm(cli.CliTest):
    def script(self, *arguments, **environment):
        return subprocess.run([SCRIPT, "--folder", self.path("vm"), *arguments], text=True,
                              capture_output=True, cwd=self.folder, timeout=cli.limit(60), check=False,
                              env={**cli.clean_environment(), **environment})

    def test_options_that_a_shell_or_qemu_would_take_for_more_are_refused(self):
        for option, value in (("--duration", "1s; touch made #"), ("--duration", "$(touch made)"),
                              ("--duration", "1s\ntouch made"), ("--duration", ""),
                              ("--batch", "1;touch made"), ("--launches", "3\n3"), ("--cpus", "a[0]"),
                              ("--memory", "1G,x=y"), ("--folder", "a,b"), ("--folder", "a:b"),
                              ("--folder", "a\nb")):
            process = self.script(option, value)
            self.assertEqual(process.returncode, 2, (option, value))
            self.assertIn(f"try_vm: {option} ", process.stderr)
        self.assertEqual(os.listdir(self.folder), [])

    @unittest.skipIf(why_not(), why_not())
    def test_packages_are_checked_and_qemu_is_nobody(self):
        for name, text in FAKES.items():
            self.write_program(f"vm/bin/{name}", text)
        self.write_program("bundle/bin/nearmetal", "")
        with tarfile.open(self.path("b:undle.tar"), "w") as bundle:
            bundle.add(self.path("bundle"), "bundle")
        process = self.script("--emulate", "--bundle", "b:undle.tar",
                              PATH=f"{self.path('vm/bin')}:{os.environ['PATH']}")
        self.assertEqual(process.returncode, 8, process.stderr)
        self.assertIn("the guest did not come up", process.stderr)
        (results,) = pathlib.Path(self.path("vm")).glob("2*Z")
        packages = (results / "debootstrap.log").read_text(encoding="utf-8").splitlines()
        self.assertLess({"--force-check-gpg", f"--keyring={KEYRING}"}, set(packages))
        qemu = (results / "qemu.log").read_text(encoding="utf-8").splitlines()
        nobody = pwd.getpwnam("nobody")
        self.assertEqual(qemu[0], f"user {nobody.pw_uid}, group {nobody.pw_gid}, others {nobody.pw_gid}")
        self.assertIn("NoNewPrivs:\t1", qemu)
        for name in ("vmlinuz", "initrd.img", "disk", "nearmetal"):
            self.assertIn(f"reads {name}", qemu)
        self.assertLess({"writes guest", "writes nothing else"}, set(qemu))
        shares = [word.split(",") for word in qemu if word.startswith("local,")]
        self.assertEqual([share[-1] for share in shares], ["security_model=mapped-xattr"] * 2)
        self.assertIn("spawn=deny", qemu[qemu.index("-sandbox") + 1])
        self.assertFalse((results / "guest").exists())

    @unittest.skipIf(why_not(), why_not())
    def test_a_folder_that_qemu_cannot_enter_is_refused(self):
        os.mkdir(self.path("vm"), 0o700)
        process = self.script()
        self.assertEqual(process.returncode, 2, process.stderr)
        self.assertIn("could not enter", process.stderr)


if __name__ == "__main__":
    cli.main()
