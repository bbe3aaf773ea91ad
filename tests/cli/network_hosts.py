"""Two hosts that are network namespaces with names of their own and a cable between them."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import uuid

import cli

HOSTS = {"host-a": "10.213.77.1", "host-b": "10.213.77.2"}

# Unpacked packages of Debian: scripts/setup.sh --tests.
DAEMONS = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "nearmetal/daemons"


def daemon(name):
    """Debian 12 adds -wlm to the names of Slurm's."""
    return next((str(path) for path in sorted(DAEMONS.glob(f"usr/sbin/{name}*"))), None)


SHELL = """#!/bin/sh
# In place of ssh: HOST COMMAND...
case $1 in
{cases}
*) echo "no route to $1" >&2; exit 255 ;;
esac
shift
exec nsenter --target $pid --net --uts --mount -- sh -c "$*"
"""


def why_not():
    """Empty where this process may make hosts."""
    for tool in ("ip", "unshare", "nsenter", "mpirun"):
        if shutil.which(tool) is None:
            return f"there is no {tool}"
    tried = subprocess.run(["unshare", "--net", "--uts", "--mount", "ip", "link", "add", "name", "left",
                            "type", "veth", "peer", "name", "right"], capture_output=True, text=True, check=False)
    return tried.stderr.strip()


WHY_NOT = why_not()


class NetworkTest(cli.CliTest):
    def setUp(self):
        super().setUp()
        self.pids = {host: self.start_host(host) for host in HOSTS}
        pid_a, pid_b = (str(pid) for pid in self.pids.values())
        subprocess.run(["ip", "link", "add", "name", "cable", "netns", pid_a, "type", "veth",
                        "peer", "name", "cable", "netns", pid_b], check=True)
        for host, address in HOSTS.items():
            self.on(host, "ip", "address", "add", address + "/24", "dev", "cable")
            self.on(host, "ip", "link", "set", "cable", "up")
        self.addCleanup(self.kill_all)
        cases = "\n".join(f"{address}) pid={self.pids[host]} ;;" for host, address in HOSTS.items())
        os.chmod(self.write("shell", SHELL.format(cases=cases)), 0o755)

    def start_host(self, name):
        """The process that holds its namespaces; with it they go."""
        boot_id = self.write(f"boot-{name}", f"{uuid.uuid4()}\n")  # by which systems are told apart
        holder = subprocess.Popen(
            ["unshare", "--net", "--uts", "--mount", "sh", "-c",
             f"mount --bind {boot_id} /proc/sys/kernel/random/boot_id && hostname {name} && "
             "ip link set lo up && echo up && exec sleep 1000"],
            stdout=subprocess.PIPE, text=True)
        self.addCleanup(holder.stdout.close)
        self.addCleanup(holder.wait)
        self.addCleanup(holder.kill)
        self.assertEqual(holder.stdout.readline(), "up\n")
        return holder.pid

    def name_hosts(self, names):
        """In /etc/hosts of both, and as they call themselves."""
        lines = "127.0.0.1 localhost\n" + "".join(f"{HOSTS[host]} {name}\n" for host, name in names.items())
        hosts = self.write("hosts", lines)
        for host, name in names.items():
            self.on(host, "mount", "--bind", hosts, "/etc/hosts")
            self.on(host, "hostname", name)

    def start_on(self, host, *command, environment):
        """A daemon, until the test ends."""
        with open(self.path("daemons.log"), "a", encoding="utf-8") as log:
            process = subprocess.Popen(self.inside(host, *command), env=environment, cwd=self.folder,
                                       stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)

    def log(self):
        """Of the daemons."""
        with open(self.path("daemons.log"), encoding="utf-8") as log:
            return log.read()[-4000:]

    def inside(self, host, *command):
        return ["nsenter", "--target", str(self.pids[host]), "--net", "--uts", "--mount",
                "--wd=" + self.folder, "--", *command]

    def on(self, host, *command):
        subprocess.run(self.inside(host, *command), check=True)

    def start_sweep(self, layouts, **members):
        """From host-a, over hosts of the layout file."""
        document = {
            "hosts": [{"name": host, "address": address, "gpus": 0}
                      for host, address in HOSTS.items()],
            "launcher": {"network": "10.213.77.0/24", "remote_shell": self.path("shell")},
            "workload": {"model": "resnet20", "image_size": 32, "classes": 10, "batch": 2,
                         "threads": 1, "warmup": 2},
            "layouts": layouts, "repeats": 1, "order": "listed", **members}
        command = [cli.EXECUTABLE, "sweep", self.write("layouts.json", json.dumps(document)),
                   "--output", "s.json"]
        return subprocess.Popen(self.inside("host-a", *command), cwd=self.folder,
                                env=cli.clean_environment(), stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def finished(self, process):
        process.out, process.err = process.communicate(timeout=cli.limit(100))
        return process

    def processes_on(self, host):
        """All in the network of the host but the one that holds it."""
        network = os.readlink(f"/proc/{self.pids[host]}/ns/net")
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                if os.readlink(f"/proc/{pid}/ns/net") == network:
                    found.append(int(pid))
            except OSError:
                pass  # it ended meanwhile, or is not ours to see
        return [pid for pid in found if pid != self.pids[host]]

    def kill_all(self):
        for host in HOSTS:
            for pid in self.processes_on(host):
                os.kill(pid, signal.SIGKILL)
