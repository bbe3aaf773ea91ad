"""Machines whose NVML is a stand-in, for tests of MIG and vGPUs."""

import json
import pathlib
import sys

import jsonschema

import cli

# The folder of the stand-in for libnvidia-ml.so.1, and the answers that it can be given.
FAKE_NVML = sys.argv.pop(2)
ROOT = pathlib.Path(__file__).resolve().parents[2]
ANSWERS = ROOT / "tests/data/nvml"

TRAINS_ON_CPUS = (pathlib.Path(cli.EXECUTABLE).parent / "libnearmetal_cpu.so").exists()

OFF, SEVEN, BALANCED = "constructed_two_h200", "constructed_mig_7_of_1g", "constructed_mig_balanced"


def uuid(number):
    return f"MIG-00000000-0000-0000-0000-{number:012}"


def mig_job(**share):
    return {"instances": [{"host": "localhost", "gpus": [0]}], "share": {"way": "mig", **share}}


class Mig(cli.CliTest):
    def on(self, answers, *arguments):
        """The program on a machine of which NVML answers so."""
        environment = {**cli.clean_environment(), "LD_LIBRARY_PATH": FAKE_NVML,
                       "FAKE_NVML_ANSWERS": str(ANSWERS / f"{answers}.txt")}
        return self.call(*arguments, env=environment)

    def plan(self, answers, *arguments):
        process = self.on(answers, "plan", *arguments, "--format", "json")
        self.assertEqual((process.returncode, process.err), (0, ""))
        plan = json.loads(process.out)
        jsonschema.validate(plan, json.loads(self.call("schema", "plan").out))
        return plan

    def layouts(self, *layouts, **more):
        document = {"hosts": [{"name": "localhost", "gpus": 1, **more}], "layouts": list(layouts)}
        jsonschema.validate(document, json.loads(self.call("schema", "layout").out))
        return self.write("layouts.json", json.dumps(document))
