"""Two hosts that are network namespaces: one network trained over both, the cable cut, a host that
does not answer."""

import json
import os
import shutil
import subprocess
import time
import unittest

import cli
from network_hosts import HOSTS, WHY_NOT, NetworkTest


TBF = ["rate", "2.5gbit", "burst", "256k", "latency", "100ms"]


@unittest.skipIf(WHY_NOT, "no network namespaces here: " + WHY_NOT)
class Network(NetworkTest):
    def wait_until_both_train(self):
        # A rank that trains has used seconds of CPU, what starts it has not.
        def trains_on(host):
            return any(cli.cpu_seconds(pid) > 2 for pid in self.processes_on(host))
        self.assertTrue(cli.wait_until(lambda: all(map(trains_on, HOSTS)), 60),
                        "the ranks did not start")

    def assert_nothing_is_left(self):
        def left():
            return {host: pids for host in HOSTS if (pids := self.processes_on(host))}
        self.assertTrue(cli.wait_until(lambda: not left(), 10), f"processes are left: {left()}")

    def test_one_network_over_two_hosts(self):
        process = self.finished(self.start_sweep(
            [{"shape": "1x1x1", "workload": {"steps": 5}},
             {"shape": "2x1x1", "workload": {"steps": 5}}]))
        self.assertEqual(process.returncode, 0, process.err)
        self.assertEqual(self.call("validate", "s.json").returncode, 0)
        report = self.report("s.json")
        names = [environment["host_name"] for environment in report["environments"]]
        self.assertEqual(sorted(names), ["host-a", "host-b"])
        run = report["arms"][1]["runs"][0]
        self.assertEqual([names[rank["environment"]] for rank in run["ranks"]],
                         ["host-a", "host-b"])
        self.assertTrue(run["proof"]["replicas_identical"])
        self.assertTrue(run["proof"]["sums_exact"])
        self.assertGreater(run["communication"]["exposed_seconds_per_step"], 0)
        self.assertIn("2x1x1", process.out)
        self.assert_nothing_is_left()

    def test_a_cable_that_is_cut_is_a_time_out_and_the_next_layout_runs(self):
        process = self.start_sweep(
            [{"shape": "2x1x1", "workload": {"duration": 600}},
             {"shape": "1x1x1", "workload": {"steps": 3}}],
            limits={"step_seconds": 3})
        self.wait_until_both_train()
        self.on("host-b", "ip", "link", "set", "cable", "down")
        start = time.monotonic()
        self.finished(process)
        self.assertLess(time.monotonic() - start, cli.limit(40), process.err)
        self.assertEqual(process.returncode, 7, process.err)
        cut, alone = (arm["runs"][0] for arm in self.report("s.json")["arms"])
        self.assertRegex(cut["failure"], "no (step|sign of life) for ")
        self.assertEqual(alone["status"], "complete")

    def bridge_both(self):
        """As docker's and libvirt's: with one address on each host."""
        for host in HOSTS:
            self.on(host, "ip", "link", "add", "docker0", "type", "veth", "peer", "name", "inner")
            self.on(host, "ip", "address", "add", "172.17.0.1/16", "dev", "docker0")
            for end in ("docker0", "inner"):
                self.on(host, "ip", "link", "set", end, "up")

    def test_a_network_with_one_address_on_both_hosts_is_left_out(self):
        self.bridge_both()
        process = self.finished(self.start_sweep([{"shape": "2x1x1", "workload": {"steps": 3}}],
                                                 launcher={"remote_shell": self.path("shell")},
                                                 limits={"start_seconds": 30}))
        self.assertEqual(process.returncode, 0, process.err)
        self.assertIn("docker0 (172.17.0.1/16) is the same on host-a, host-b: MPI and NCCL leave this "
                      "network out\n", process.err)
        variables = self.report("s.json")["environments"][0]["variables"]
        self.assertEqual(variables["NCCL_SOCKET_IFNAME"], "^=docker0,lo")

    def test_nccl_takes_the_network_that_mpi_does(self):
        process = self.finished(self.start_sweep([{"shape": "2x1x1", "workload": {"steps": 3}}]))
        self.assertEqual(process.returncode, 0, process.err)
        for environment in self.report("s.json")["environments"]:
            self.assertEqual(environment["variables"]["NCCL_SOCKET_IFNAME"], "=cable")

    def test_ucx_takes_the_network_that_is_named(self):
        launcher = {"network": "10.213.77.0/24", "remote_shell": self.path("shell"), "mpi": "ucx"}
        for host in HOSTS:
            self.on(host, "mount", "-t", "sysfs", "none", "/sys")  # where UCX looks for interfaces
        self.bridge_both()  # where each host would reach itself
        for host in HOSTS:  # the kernel says up to a second later that a cable is connected
            self.on(host, "sh", "-c", "until grep -q up /sys/class/net/cable/operstate; do sleep 0.02; done")
        process = self.finished(self.start_sweep([{"shape": "2x1x1", "workload": {"steps": 3}}],
                                                 launcher=launcher))
        if process.returncode == 8:
            self.skipTest(process.err)
        self.assertEqual(process.returncode, 0, process.err)
        report = self.report("s.json")
        for rank in report["arms"][0]["runs"][0]["ranks"]:
            self.assertEqual(rank["mpi_transports"], ["tcp/cable"])
        for environment in report["environments"]:
            self.assertEqual(environment["variables"]["UCX_NET_DEVICES"], "cable")

    def test_two_addresses_of_one_machine_are_refused_before_anything_runs(self):
        self.on("host-b", "ip", "address", "add", "10.213.77.3/24", "dev", "cable")
        shell = self.path("shell")
        with open(shell, encoding="utf-8") as file:
            text = file.read()
        self.write("shell", text.replace("*) echo", f"10.213.77.3) pid={self.pids['host-b']} ;;\n*) echo"))
        hosts = [{"name": f"vm{i}", "address": f"10.213.77.{i}", "gpus": 0} for i in (2, 3)]
        process = self.finished(self.start_sweep([{"shape": "2x1x1"}], hosts=hosts))
        self.assertEqual(process.returncode, 10, process.err)
        self.assertIn("hosts 'vm2' and 'vm3' are one machine, host-b: ", process.err)
        self.assertFalse(os.path.exists(self.path("s.json")))

    def test_variables_that_one_host_alone_has_are_named(self):
        with open(self.path("shell"), encoding="utf-8") as file:
            text = file.read()
        self.write("shell", text.replace('exec nsenter', 'NCCL_IB_DISABLE=1 exec nsenter'))
        process = self.finished(self.start_sweep([{"shape": "2x1x1", "workload": {"steps": 3}}]))
        self.assertEqual(process.returncode, 0, process.err)
        self.assertIn("ranks will differ: NCCL_IB_DISABLE is 1 on host-b, not set on host-a", process.err)

    def test_a_link_is_found_by_its_network_of_ipv6(self):
        added = subprocess.run(self.inside("host-a", "ip", "address", "add", "fd00:77::1/64", "dev", "cable",
                                           "nodad"), capture_output=True, text=True, check=False)
        if added.returncode != 0:
            self.skipTest("no IPv6 here: " + added.stderr)
        self.on("host-a", "mount", "-t", "sysfs", "none", "/sys")  # that of its own network

        def run(claim):
            command = [cli.EXECUTABLE, "run", "--device", "cpu", "--model", "resnet20", "--image-size", "32",
                       "--batch", "2", "--steps", "2", "--warmup", "1", "--no-report", "--expect-link", claim]
            return subprocess.run(self.inside("host-a", *command), cwd=self.folder, env=cli.clean_environment(),
                                  capture_output=True, text=True, timeout=cli.limit(60), check=False)

        self.assertEqual(run("10G,fd00:77::/64").returncode, 0)
        self.assertIn("host host-a has cable of 10 Gbit/s", run("25G,fd00:77::/60").stderr)
        self.assertIn("no network interface with an address in fd00:78::/60", run("10G,fd00:78::/60").stderr)
        shape = ["tc", "qdisc", "add", "dev", "cable", "root"]
        if shutil.which("tc") is None or subprocess.run(self.inside("host-a", *shape, "tbf", *TBF), check=False).returncode:
            self.skipTest("this kernel shapes no cable")
        self.assertEqual(run("2.5G,fd00:77::/64").returncode, 0)
        self.assertIn("host host-a has cable of 2.5 Gbit/s", run("10G,fd00:77::/60").stderr)
        shape[2] = "replace"
        self.on("host-a", *shape, "tbf", "rate", "40gbit", *TBF[2:])
        self.assertEqual(run("40G,fd00:77::/64").returncode, 0, "in a field of 64 bits")
        self.on("host-a", *shape, "handle", "1:", "htb", "default", "1")
        self.assertIn("has cable of unknown rate: tc shapes it by htb", run("10G,fd00:77::/60").stderr)

    def test_doctor_tries_the_hosts_of_a_layout_file(self):
        def findings(hosts):
            document = {"hosts": [{"name": host, "address": address, "gpus": 0}
                                  for host, address in hosts.items()],
                        "launcher": {"network": "10.213.77.0/24",
                                     "remote_shell": self.path("shell")},
                        "layouts": [{"shape": "2x1x1"}]}
            command = self.inside("host-a", cli.EXECUTABLE, "doctor", "--json",
                                  self.write("layouts.json", json.dumps(document)))
            process = subprocess.run(command, cwd=self.folder, env=cli.clean_environment(),
                                     capture_output=True, text=True, timeout=cli.limit(90), check=False)
            return {finding["code"]: finding for finding in json.loads(process.stdout)["findings"]}

        self.assertEqual(findings(HOSTS)["hosts"]["seen"],
                         "a sum over ranks on host-a, host-b arrives")
        lost = findings({**HOSTS, "host-c": "10.213.77.9"})["hosts_exchange"]
        self.assertEqual(lost["severity"], "blocker")
        self.assertIn("no route to 10.213.77.9", lost["seen"])
        self.assert_nothing_is_left()

    def test_a_host_that_does_not_answer_fails_its_layout_alone(self):
        hosts = [{"name": host, "address": address, "gpus": 0}
                 for host, address in {**HOSTS, "host-c": "10.213.77.9"}.items()]
        process = self.finished(self.start_sweep(
            [{"shape": "3x1x1", "workload": {"steps": 3}},
             {"shape": "2x1x1", "workload": {"steps": 3}}], hosts=hosts))
        self.assertEqual(process.returncode, 6, process.err)
        failed, good = (arm["runs"][0] for arm in self.report("s.json")["arms"])
        self.assertIn("no route to 10.213.77.9", failed["failure"])
        self.assertEqual(good["status"], "complete")
        self.assert_nothing_is_left()


if __name__ == "__main__":
    cli.main()
