"""Slurm on two hosts that are network namespaces: its controller on the first, a daemon on each. The
packages of Debian are unpacked into a folder (scripts/setup.sh --tests)."""

import os
import pathlib
import subprocess

import cli
from network_hosts import DAEMONS, HOSTS, WHY_NOT as WHY_NO_NETWORK, NetworkTest, daemon

def plugins():
    return next((str(path.parent) for path in DAEMONS.glob("usr/lib/*/*/auth_none.so")), None)


WHY_NOT = WHY_NO_NETWORK or ("" if daemon("slurmctld") and daemon("slurmd") and plugins() else
                             f"Slurm is not in {DAEMONS}")

# Nobody is asked who he is, so that no munge is needed. CPUs are more than there are.
CONFIGURATION = """
ClusterName=made
SlurmctldHost=host-a
SlurmUser=root
AuthType=auth/none
CredType=cred/none
PluginDir={plugins}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
TmpFS={folder}/tmp-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SwitchType=switch/none
MailProg=/bin/true
KillWait=10
SlurmdParameters=config_overrides
NodeName=host-a,host-b CPUs=4
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


WORK = ("--model", "resnet20", "--image-size", "32", "--classes", "10", "--batch", "2", "--threads", "1",
        "--warmup", "1")


class SlurmTest(NetworkTest):
    def setUp(self):
        super().setUp()
        os.mkdir(self.path("state"))
        configuration = self.write("slurm.conf", CONFIGURATION.format(plugins=plugins(), folder=self.folder))
        libraries = f"{plugins()}:{pathlib.Path(plugins()).parent}"
        self.name_hosts({host: host for host in HOSTS})
        self.environment = {**cli.clean_environment(), "SLURM_CONF": configuration,
                            "LD_LIBRARY_PATH": libraries,
                            "PATH": f"{DAEMONS}/usr/bin:{os.environ['PATH']}"}
        self.start_on("host-a", daemon("slurmctld"), "-D", "-f", configuration,
                      environment=self.environment)
        for host in HOSTS:
            for folder in ("spool", "tmp"):
                os.mkdir(self.path(f"{folder}-{host}"))
            self.start_on(host, daemon("slurmd"), "-D", "-f", configuration, "-N", host,
                       "-d", daemon("slurmstepd"), environment=self.environment)
        idle = ("sinfo", "--noheader", "--states=idle", "--format=%D")
        self.assertTrue(cli.wait_until(lambda: self.slurm(*idle).stdout.strip() == "2", 30),
                        self.log())

    def slurm(self, *command):
        """A command on host-a, to its end."""
        return subprocess.run(self.inside("host-a", *command), env=self.environment, cwd=self.folder,
                              stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=cli.limit(100), check=False)

    def reports(self):
        return sorted(name for name in os.listdir(self.folder) if ".report.json" in name)

    def hosts_of(self, name):
        """Of each rank."""
        report = self.report(name)
        environments = [environment["host_name"] for environment in report["environments"]]
        return [environments[rank["environment"]] for rank in report["arms"][0]["runs"][0]["ranks"]]

    def write_script(self, *options, starter="slurm"):
        process = self.slurm(cli.EXECUTABLE, "plan", *options, *WORK, "--format", starter,
                             "--output", "job.sbatch", "--force")
        self.assertEqual(process.returncode, 0, process.stderr)

    def job_log(self):
        return pathlib.Path(self.path("job.log")).read_text(encoding="utf-8")

    def trains(self):
        """A rank on host-b has computed more than what comes before the first step."""
        return any(cli.cpu_seconds(pid) > 2 for pid in self.processes_on("host-b"))

    def assert_cancelled_keeps(self, *how):
        self.write_script("2x1x1", "--hosts", "2*0", "--duration", "600", "--repeats", "1")
        self.slurm("sbatch", "--output=job.log", "job.sbatch")
        self.assertTrue(cli.wait_until(self.trains, 60), self.log())
        self.slurm("scancel", *how, "--user=root")
        self.assertTrue(cli.wait_until(
            lambda: not self.slurm("squeue", "--noheader").stdout.strip(), 60), self.log())
        self.assertEqual(self.reports(), ["1-2x1x1-run1.report.json"], self.job_log())
        (name,) = self.reports()
        self.assertEqual(self.call("validate", name).returncode, 0)
        (run,) = self.report(name)["arms"][0]["runs"]
        self.assertEqual(run["status"], "partial")
        self.assertGreater(run["window"]["steps"], 0)
