"""Two hosts that are network namespaces, and a cable that tc makes slow: compare names the network.

Half a minute, so that it runs when asked for: ctest -C slow -R slow_cable. Needs root, iproute2 and a
kernel that shapes, else ends with 77.
"""

import json
import os
import shutil
import subprocess
import unittest

import cli
from network_hosts import HOSTS, WHY_NOT, NetworkTest


@unittest.skipIf(WHY_NOT, "no network namespaces here: " + WHY_NOT)
@unittest.skipUnless(shutil.which("tc"), "there is no tc")
class SlowCable(NetworkTest):
    def shape_cable(self, rate):
        for host in HOSTS:
            shaped = subprocess.run(
                self.inside(host, "tc", "qdisc", "add", "dev", "cable", "root", "tbf", "rate", rate,
                            "burst", "32kbit", "latency", "400ms"),
                capture_output=True, text=True, check=False)
            if shaped.returncode != 0:
                self.skipTest("this kernel shapes no cable: " + shaped.stderr.strip())

    def test_a_slow_cable_is_named_first(self):
        layouts = [{"shape": "2x1x1", "workload": {"steps": 4, "attribute": True}}]
        for name in ("fast", "slow"):
            if name == "slow":
                self.shape_cable("50mbit")
            process = self.finished(self.start_sweep(layouts))
            self.assertEqual(process.returncode, 0, process.err)
            os.rename(self.path("s.json"), self.path(name + ".json"))
        process = self.call("compare", "fast.json", "slow.json", "--json")
        (explanation,) = json.loads(process.out)["explanations"]
        layer = explanation["layers"][0]
        self.assertEqual(layer["layer"], "communication", explanation)
        self.assertGreater(layer["share_of_step"], 0.5)
        self.assertIn("the sums differ, also with nothing else going on", layer["statement"])
        self.assertEqual(explanation["causes"][0]["layer"], "communication")
        text = self.call("compare", "fast.json", "slow.json").out
        self.assertRegex(text, r"(?m)^likely cause 1, communication: ")


if __name__ == "__main__":
    cli.main()
