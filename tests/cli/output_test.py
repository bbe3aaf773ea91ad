"""Outputs that fail: full disks, closed pipes, files that exist. Nothing measured is lost."""

import os
import resource
import shutil
import stat
import subprocess
import unittest

import cli


def no_large_files():
    """Stands for a full disk: no file may grow beyond 1 KB."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (1024, 1024))


class Output(cli.CliTest):
    def test_a_full_disk_is_exit_9_and_the_summary_is_on_stderr(self):
        process = self.tiny("--steps", "3", "--output", "report.json", preexec_fn=no_large_files)
        self.assertEqual(process.returncode, 9, process.err)
        self.assertIn("images/s", process.err)
        self.assertIn("cannot write report.json", process.err)
        self.assertEqual(os.listdir(self.folder), [], "no half file stays")

    def test_a_full_disk_keeps_the_old_report(self):
        self.write("report.json", "precious")
        process = self.tiny("--steps", "3", "--output", "report.json", "--force",
                            preexec_fn=no_large_files)
        self.assertEqual(process.returncode, 9, process.err)
        with open(self.path("report.json"), encoding="utf-8") as file:
            self.assertEqual(file.read(), "precious")

    def test_force_replaces_a_report(self):
        self.write("report.json", "old")
        process = self.tiny("--steps", "3", "--output", "report.json", "--force")
        self.assertEqual(process.returncode, 0, process.err)
        self.assertEqual(self.report()["status"], "complete")

    def test_a_pipe_is_neither_replaced_nor_waited_for(self):
        os.mkfifo(self.path("pipe"))
        os.symlink("pipe", self.path("link"))
        for name in ("pipe", "link"):
            process = self.tiny("--steps", "3", "--output", name, "--force")
            self.assert_refused(process, 9, name, "it is a disk, a pipe or a socket")
            process = self.call("plan", "1x1x1", "--output", name, "--force")
            self.assert_refused(process, 9, name, "it is a disk, a pipe or a socket")
        self.assertTrue(stat.S_ISFIFO(os.stat(self.path("pipe")).st_mode))

    @unittest.skipIf(os.geteuid() != 0, "root alone gives links away")
    def test_force_follows_no_link_of_another_user(self):
        self.write("precious", "old")
        os.symlink("precious", self.path("link"))
        os.lchown(self.path("link"), 12345, 12345)
        for arguments in ([*cli.TINY, "--steps", "3"], ["plan", "1x1x1"], ["export"]):
            process = self.call(*arguments, "--output", "link", "--force")
            self.assert_refused(process, 9, "cannot write link: ", "link is a link of another user")
        os.lchown(self.path("link"), os.geteuid(), -1)
        process = self.call("plan", "1x1x1", "--output", "link", "--force")
        self.assertEqual(process.returncode, 0, process.err)
        self.assertTrue(os.path.islink(self.path("link")))
        self.assertNotEqual(os.path.getsize(self.path("precious")), len("old"))

    def test_a_report_that_nobody_wants_goes_nowhere(self):
        for arguments in (["--output", "/dev/null"], ["--no-report"]):
            process = self.tiny("--steps", "3", *arguments)
            self.assertEqual(process.returncode, 0, process.err)
            self.assertIn("images/s", process.out)
            self.assertEqual(os.listdir(self.folder), [])
        self.assertTrue(stat.S_ISCHR(os.stat("/dev/null").st_mode))
        for other in ("--json", "--output=report.json"):
            self.assert_refused(self.tiny("--no-report", other), 2, "--no-report")
        if shutil.which("mpirun"):
            process = self.call("sweep", "1x1x1", "--output", "/dev/null")
            self.assert_refused(process, 2, "journal lies beside the report")

    def test_a_report_that_its_file_does_not_take_is_elsewhere(self):
        os.mkdir(self.path("tmp"))
        full = self.tiny("--steps", "3", "--output", "/dev/full",
                         env={**cli.clean_environment(), "TMPDIR": self.path("tmp")})
        self.assertEqual(full.returncode, 9, full.err)
        elsewhere, = os.listdir(self.path("tmp"))
        self.assertIn(f"the report is in {self.path('tmp')}/{elsewhere} instead", full.err)
        self.assertEqual(self.report("tmp/" + elsewhere)["status"], "complete")

    def test_a_report_can_come_through_a_pipe(self):
        self.assertEqual(self.tiny("--steps", "3", "--output", "report.json").returncode, 0)
        with open(self.path("report.json"), "rb") as report:
            cat = subprocess.Popen(["cat"], stdin=report, stdout=subprocess.PIPE)
        with cat:
            process = self.call("validate", "/dev/stdin", stdin=cat.stdout)
        self.assertEqual(process.returncode, 0, process.err)

    def test_a_stdout_that_is_full_is_exit_9(self):
        for arguments in (["--help"], ["schema"], [*cli.TINY, "--steps", "3", "--json"]):
            with self.subTest(arguments=arguments), open("/dev/full", "w", encoding="utf-8") as full:
                process = self.call(*arguments, stdout=full)
                self.assertEqual(process.returncode, 9, process.err)
                self.assertIn("standard output could not be written", process.err)

    def test_a_reader_that_left_is_met_in_silence_and_the_report_is_there(self):
        read_end, write_end = os.pipe()
        os.close(read_end)
        process = self.tiny("--steps", "3", "--output", "report.json", "--quiet", stdout=write_end)
        os.close(write_end)
        self.assertEqual((process.returncode, process.err), (9, ""))
        self.assertEqual(self.report()["status"], "complete")

    def test_a_closed_stderr_does_not_matter(self):
        read_end, write_end = os.pipe()
        os.close(read_end)
        process = self.tiny("--steps", "3", "--output", "report.json", stderr=write_end)
        os.close(write_end)
        self.assertEqual(process.returncode, 0)
        self.assertIn("images/s", process.out)

    def test_no_report_takes_the_place_of_a_closed_descriptor(self):
        for closed in (0, 1, 2):
            name = f"closed-{closed}.json"
            process = self.tiny("--steps", "3", "--output", name,
                                preexec_fn=lambda fd=closed: os.close(fd))
            self.assertEqual(process.returncode, 9 if closed == 1 else 0, process.err)
            self.assertEqual(self.report(name)["status"], "complete")

    def test_folders_are_left_out_of_a_report_without_host_info(self):
        process = self.tiny("--steps", "1", "--no-host-info", "--output=" + self.path("a.json"),
                            "--plan-cache", self.path("cache.json"))
        self.assertEqual(process.returncode, 0, process.err)
        with open(self.path("a.json"), encoding="utf-8") as file:
            self.assertNotIn(self.folder, file.read())
        report = self.report("a.json")
        self.assertIn("--output=a.json", report["invocation"]["argv"])
        self.assertEqual(report["invocation"]["config"]["plan_cache"]["value"], "cache.json")
        self.assertEqual(self.call("validate", "a.json").returncode, 0)

    def test_a_damaged_plan_cache_is_one_warning(self):
        cache = self.write("plans.json", "garbage")
        process = self.tiny("--steps", "3", "--plan-cache", cache, "--output", "report.json")
        self.assertEqual(process.returncode, 0, process.err)
        self.assertEqual(process.out.count("is ignored"), 1)
        with open(cache, encoding="utf-8") as file:
            self.assertEqual(file.read(), "garbage", "somebody's file")

    def test_plans_of_another_batch_are_refused_before_anything_is_prepared(self):
        self.assertEqual(self.tiny("--steps", "2", "--output", "a.json").returncode, 0)
        process = self.call(*cli.TINY[:-2], "--batch", "3", "--quiet", "--plans", "a.json")
        self.assert_refused(process, 2, "--plans: a.json holds no plans for `run --device=cpu")

    def test_plans_of_a_report_that_is_none(self):
        path = self.write("bad.json", "{")
        process = self.call("run", "--device", "cpu", "--plans", path, "--quiet", "--json")
        self.assert_refused(process, 5, "bad.json is not a valid report")


if __name__ == "__main__":
    cli.main()
