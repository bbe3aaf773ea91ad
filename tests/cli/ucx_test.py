"""`launcher.mpi: ucx`: the transports that UCX took are recorded and compared, and what it lacks is told."""

import json
import os
import pathlib
import shutil
import subprocess
import unittest

import cli


def components():
    """The folder of those of Open MPI, by its own answer; none where it has none for UCX."""
    if not shutil.which("ompi_info"):
        return None
    asked = subprocess.run(["ompi_info", "--path", "pkglibdir", "--parsable"], capture_output=True, text=True,
                           check=False)
    folder = pathlib.Path(asked.stdout.strip().rpartition(":")[2])
    return folder if (folder / "mca_pml_ucx.so").exists() else None


COMPONENTS = components()
HERE = ["--hosts", "localhost:0", "--repeats", "1", *cli.TINY_WORK, "--steps", "3"]


@unittest.skipUnless(COMPONENTS, "this Open MPI has no component for UCX that lies by itself")
class Ucx(cli.CliTest):
    def sweep(self, *arguments, **variables):
        return self.call("sweep", "1x1x2", *HERE, *arguments, env={**cli.clean_environment(), **variables})

    def test_what_ucx_took_is_recorded_and_compared(self):
        document = {"hosts": [{"name": "here", "address": "localhost", "gpus": 0}], "launcher": {"mpi": "ucx"},
                    "layouts": [{"shape": "1x1x2"}, {"shape": "1x2x1", "emulate": True}], "repeats": 1}
        path = self.write("layouts.json", json.dumps(document))
        process = self.call("sweep", path, *cli.TINY_WORK, "--steps", "3", "--output", "ucx.json")
        self.assertEqual(process.returncode, 0, process.err)
        self.assertEqual(self.call("validate", "ucx.json").returncode, 0)
        report = self.report("ucx.json")
        names = [arm["name"] for arm in report["arms"]]
        by_name = {arm["name"]: arm["runs"][0]["ranks"] for arm in report["arms"]}
        for rank in by_name["1x1x2"]:
            self.assertTrue(rank["mpi_transports"])
            for way in rank["mpi_transports"]:
                self.assertRegex(way, r"^(sysv|posix|cma|knem|xpmem)/memory$", "shared memory of one host")
        for rank in by_name["1x2x1"]:
            self.assertEqual(rank["mpi_transports"], ["tcp/lo"], "emulated VMs share no memory")
        variables = [environment["variables"] for environment in report["environments"]]
        self.assertEqual({one["OMPI_MCA_pml"] for one in variables}, {"ucx"})

        report["arms"] = report["arms"][names.index("1x1x2"):][:1]
        for rank in report["arms"][0]["runs"][0]["ranks"]:
            rank["mpi_transports"] = ["tcp/eth0"]
        self.write("tcp.json", json.dumps(report))
        process = self.call("compare", "ucx.json#1x1x2", "tcp.json")
        self.assertEqual(process.returncode, 4, process.err)
        self.assertRegex(process.err + process.out, "mpi_transports.*(sysv|posix).* tcp")
        self.assertEqual(self.call("compare", "ucx.json#1x1x2", "tcp.json", "--allow-differ",
                                   "mpi_transports").returncode, 0)

    def test_without_its_component_nothing_is_started(self):
        folder = pathlib.Path(self.path("components"))
        folder.mkdir()
        for component in COMPONENTS.glob("mca_*.so"):
            if component.name != "mca_pml_ucx.so":
                (folder / component.name).symlink_to(component)
        lacks = {"OMPI_MCA_mca_base_component_path": str(folder)}
        process = self.sweep("--mpi", "ucx", "--output", "none.json", **lacks)
        self.assert_refused(process, 8, "Open MPI here has no component for UCX (pml ucx)", "--mpi")
        self.assertFalse(os.path.exists(self.path("none.json")))
        # As each rank does that is on another host, or in a script.
        plan = self.call("plan", "1x1x2", *HERE, "--mpi", "ucx", "--format", "sh")
        script = subprocess.run(["bash", self.write("script", plan.out)], cwd=self.folder, capture_output=True,
                                text=True, env={**cli.clean_environment(), **lacks}, timeout=cli.limit(60),
                                check=False)
        self.assertEqual(script.returncode, 8, script.stderr)
        self.assertRegex(script.stderr, r"Open MPI v\S+ has no component for UCX \(pml ucx\)")

    @cli.failed_jobs_end_at_once
    def test_no_way_to_the_other_ranks_is_told_in_the_words_of_ucx(self):
        process = self.sweep("--mpi", "ucx", "--output", "none.json", UCX_TLS="self")
        self.assertEqual(process.returncode, 6, process.err)
        failure = self.report("none.json")["arms"][0]["runs"][0]["failure"]
        self.assertIn("; UCX: no active messages transport to ", failure)

    def test_what_a_plan_sets_itself_is_refused(self):
        for launcher, emulate, place in (
                ({"mpi": "ucx", "variables": {"OMPI_MCA_pml": "ob1"}}, False, "OMPI_MCA_pml"),
                ({"mpi": "tcp", "variables": {"OMPI_MCA_pml": "ucx"}}, False, "OMPI_MCA_pml"),
                ({"mpi": "ucx", "variables": {"UCX_TLS": "all"}}, True, "UCX_TLS")):
            path = self.write("l.json", json.dumps({
                "hosts": [{"name": "here", "gpus": 0}], "launcher": launcher,
                "layouts": [{"shape": "1x2x1", "emulate": True} if emulate else {"shape": "1x1x2"}]}))
            self.assert_refused(self.call("plan", path), 2, "/launcher/variables/" + place, "/launcher/mpi")
        path = self.write("l.json", json.dumps({"hosts": [{"name": "here", "gpus": 0}],
                                                "launcher": {"mpi": "rdma"}, "layouts": [{"shape": "1x1x2"}]}))
        self.assert_refused(self.call("plan", path), 2, "/launcher/mpi", "tcp", "ucx")
        self.assert_refused(self.call("plan", "1x1x1", "--mpi", "rdma"), 2, "--mpi", "tcp, ucx")


if __name__ == "__main__":
    cli.main()
