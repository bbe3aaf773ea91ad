"""scripts/link_rates.sh: its options, and with --slow the curve over rates that tc sets. Needs root,
network namespaces and a kernel that shapes, else ends with 77."""

import json
import pathlib
import re
import subprocess
import sys
import unittest

import cli
from network_hosts import WHY_NOT

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "link_rates.sh"
SLOW = "--slow" in sys.argv and (sys.argv.remove("--slow") or True)
WORK = ["--model", "resnet20", "--image-size", "32", "--classes", "10", "--batch", "2"]


class LinkRates(cli.CliTest):
    def script(self, *arguments, seconds=60):
        return subprocess.run([SCRIPT, "--program", cli.EXECUTABLE, "--folder", self.path("rates"), *arguments],
                              capture_output=True, text=True, cwd=self.folder, env=cli.clean_environment(),
                              timeout=cli.limit(seconds), check=False)

    def measured(self, *arguments, seconds=60):
        process = self.script(*arguments, seconds=seconds)
        if process.returncode == 8:
            self.skipTest(process.stderr)
        self.assertEqual(process.returncode, 0, process.stderr)
        self.assertNotIn("Killed", process.stderr)
        return process.stdout

    def test_wrong_options_are_refused(self):
        for arguments in (["--rates", "1;2"], ["--rates", "0"], ["--rates", "1,0.0"], ["--rates", "1G"], ["--rates"],
                          ["--repeats", "0"], ["--mpi", "rdma"], ["--program", "/nowhere"], ["--other", "1"]):
            process = self.script(*arguments)
            self.assertEqual(process.returncode, 2, process.stderr)
            self.assertRegex(process.stderr, rf"^link_rates: .*{arguments[0]}")
        self.assertIn("--rates LIST", self.script("--help").stdout)

    @unittest.skipIf(WHY_NOT, "no network namespaces here: " + WHY_NOT)
    def test_ranks_find_the_rate_that_the_script_sets(self):
        out = self.measured("--rates", "0.5,5", "--repeats", "1", "--", *WORK, "--steps", "3", "--warmup", "1")
        self.assertIn("Efficiency over the rate of the network", out)
        (folder,) = pathlib.Path(self.path("rates")).iterdir()
        for rate, bits in (("0.5", 500_000_000), ("5", 5_000_000_000)):
            report = json.loads((folder / f"{rate}.report.json").read_text(encoding="utf-8"))
            by_name = {arm["name"]: arm["runs"][0] for arm in report["arms"]}
            self.assertEqual(by_name[f"two hosts, {rate} Gbit/s"]["link_bits_per_second"], bits)
            self.assertIsNone(by_name["one host"]["link_bits_per_second"])
            for environment in report["environments"]:
                (cable,) = (one for one in environment["network"] if one["name"] == "cable")
                self.assertEqual(cable["bits_per_second"], bits)

    @unittest.skipUnless(SLOW, "a minute")
    @unittest.skipIf(WHY_NOT, "no network namespaces here: " + WHY_NOT)
    def test_the_curve_rises_with_the_rate(self):
        out = self.measured("--rates", "0.1,1,2.5,10,25", "--", *WORK, "--duration", "2s", seconds=300)
        rows = re.findall(r"^\| two hosts, [^|]*\| ([\d.]+) Gbit/s \| ([\d.]+)", out, re.M)
        self.assertEqual([rate for rate, _ in rows], ["0.1", "1", "2.5", "10", "25"])
        self.assertLess(2 * float(rows[0][1]), float(rows[-1][1]), "at 0.1 Gbit/s two hosts wait for most of the time")
        self.assertRegex(out, "2 ranks against one host: 95 % is (not )?reached")


if __name__ == "__main__":
    cli.main()
