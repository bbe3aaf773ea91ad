"""Two hosts that are network namespaces, with a real sshd on each, whose names differ behind the first dot
alone, and a name server that does not answer."""

import subprocess
import unittest

import cli
from network_hosts import DAEMONS, HOSTS, WHY_NOT as WHY_NO_NETWORK, NetworkTest, daemon

NAMES = {"host-a": "gpu01.rack1.example.net", "host-b": "gpu01.rack2.example.net"}
WHY_NOT = WHY_NO_NETWORK or ("" if daemon("sshd") else f"sshd is not in {DAEMONS}")

SERVER = """
HostKey {folder}/key
AuthorizedKeysFile {folder}/key.pub
PidFile none
StrictModes no
UsePAM no
"""
CLIENT = """
Host *
  IdentityFile {folder}/key
  StrictHostKeyChecking no
  UserKnownHostsFile /dev/null
"""


@unittest.skipIf(WHY_NOT, "no sshd here: " + WHY_NOT)
class Ssh(NetworkTest):
    def setUp(self):
        super().setUp()
        self.name_hosts(NAMES)
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.path("key")], check=True)
        server = self.write("server", SERVER.format(folder=self.folder))
        self.write("client", CLIENT.format(folder=self.folder))
        with open("/etc/passwd", encoding="utf-8") as file:
            users = self.write("passwd", file.read() + "sshd:x:65533:65534::/run/sshd:/usr/sbin/nologin\n")
        silent = self.write("resolv.conf", "nameserver 10.213.77.99\n")
        libraries = ":".join(str(path.parent) for path in DAEMONS.glob("**/libwrap.so.0"))
        environment = {**cli.clean_environment(), "LD_LIBRARY_PATH": libraries}
        for host in HOSTS:
            self.on(host, "mount", "--bind", users, "/etc/passwd")
            self.on(host, "mount", "--bind", silent, "/etc/resolv.conf")
            self.on(host, "mount", "-t", "tmpfs", "none", "/run")
            self.on(host, "mkdir", "-m", "755", "/run/sshd")
            self.start_on(host, daemon("sshd"), "-D", "-e", "-f", server, environment=environment)
        self.shell = f"ssh -F {self.path('client')}"
        for name in NAMES.values():
            self.assertTrue(cli.wait_until(lambda: self.says_yes(name), 20), self.log())

    def says_yes(self, name):
        tried = subprocess.run(self.inside("host-a", *self.shell.split(), name, "true"),
                               stdin=subprocess.DEVNULL, capture_output=True, check=False)
        return tried.returncode == 0

    def test_hosts_of_one_first_label_are_two(self):
        hosts = [{"name": name, "gpus": 0} for name in NAMES.values()]
        process = self.finished(self.start_sweep([{"shape": "2x1x1", "workload": {"steps": 3}}], hosts=hosts,
                                                 launcher={"remote_shell": self.shell}))
        self.assertEqual(process.returncode, 0, process.err + self.log())
        names = [environment["host_name"] for environment in self.report("s.json")["environments"]]
        self.assertEqual(names, list(NAMES.values()))


if __name__ == "__main__":
    cli.main()
