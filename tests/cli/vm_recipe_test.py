"""docs/vm_against_bare_metal.md, with --slow step by step: CPU ranks on this machine against those in two
network namespaces in the place of VMs."""

import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import unittest

SLOW = "--slow" in sys.argv
if SLOW:
    sys.argv.remove("--slow")

import cli  # noqa: E402, reads the arguments
import network_hosts  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/vm_against_bare_metal.md"


def without_remarks(path):
    return json.loads(re.sub(r"(?m)//.*$", "", pathlib.Path(path).read_text(encoding="utf-8")))


def commands_of(text):
    return [shlex.split(line) for line in text.replace("\\\n", " ").splitlines()
            if line.strip().startswith(("cp ", "nearmetal "))]


def commands_of_the_steps():
    steps = PAGE.read_text(encoding="utf-8").split("## Before there are VMs")[0]
    return commands_of("".join(block.split("```")[0] for block in steps.split("```sh\n")[1:]))


class Recipe(cli.CliTest):
    def test_page_and_help_show_the_same_commands(self):
        process = self.call("help", "vm")
        self.assertEqual(process.returncode, 0, process.err)
        shown = commands_of(process.out.replace(f"{ROOT}/layouts/", "layouts/"))
        self.assertEqual(shown, commands_of_the_steps())
        for words in commands_of(process.out):
            if words[0] == "cp":
                self.assertTrue(pathlib.Path(words[1]).is_file(), words)

    def test_layouts_of_both_sides_have_the_same_names_and_ranks(self):
        sides = []
        for file in ("dell_bare_metal", "dell_vms"):
            plan = json.loads(self.call("plan", file, "--format", "json").out)
            sides.append([(layout["name"], sum(len(job["ranks"]) for job in layout["jobs"]))
                          for layout in plan["layouts"]])
        self.assertEqual(*sides)
        self.assertEqual(len(sides[0]), 5)

    def test_four_nodes_have_a_gpu_each(self):
        layouts = without_remarks(ROOT / "layouts/nodes_1_2_4.json")["layouts"]
        self.assertEqual([layout["shape"] for layout in layouts], ["1x1x1", "2x1x1", "4x1x1"])


@unittest.skipUnless(SLOW, "minutes; ctest -C slow")
@unittest.skipIf(network_hosts.WHY_NOT, "no network namespaces here: " + network_hosts.WHY_NOT)
class Steps(network_hosts.NetworkTest):
    def edited(self, name, hosts, launcher):
        """What the first step asks of its reader, and work that CPUs do in a second."""
        document = without_remarks(self.path(name))
        document["hosts"] = hosts
        document["launcher"] = launcher
        document["workload"] = {"model": "resnet20", "image_size": 32, "classes": 10, "batch": 2,
                                "threads": 1, "warmup": 2, "steps": 20}
        for layout in document["layouts"]:
            layout.pop("expect", None)
        document["repeats"] = 2
        self.write(name, json.dumps(document))

    def edit_both(self):
        self.edited("bare_metal.json", [{"name": "server0", "address": "localhost", "gpus": 0}], {})
        self.edited("vms.json",
                    [{"name": host, "address": address, "node": "server0", "gpus": 0}
                     for host, address in network_hosts.HOSTS.items()],
                    {"network": "10.213.77.0/24", "remote_shell": self.path("shell")})

    def test_step_by_step(self):
        os.symlink(ROOT / "layouts", self.path("layouts"))
        os.symlink(cli.EXECUTABLE, self.path("nearmetal"))
        environment = {**cli.clean_environment(), "PATH": f"{self.folder}:{os.environ['PATH']}"}
        for words in commands_of_the_steps():
            if words[0] == "nearmetal" and not os.path.exists(self.path("edited")):
                self.edit_both()
                self.write("edited", "")
            on_vm = words[:2] in (["nearmetal", "sweep"], ["nearmetal", "doctor"]) and words[2] == "vms.json"
            command = self.inside("host-a", *words) if on_vm else words
            process = subprocess.run(command, cwd=self.folder, env=environment, text=True, check=False,
                                     capture_output=True, timeout=cli.limit(300))
            self.assertEqual(process.returncode, 0, f"{words}: {process.stdout}{process.stderr}")
        for name in ("one GPU", "two GPUs", "two jobs of one GPU", "two jobs of two GPUs",
                     "one job of four GPUs"):
            self.assertRegex(process.stdout, rf"\| {name} \|.*(EQUIVALENT|SLOWER|FASTER|INCONCLUSIVE)")
        self.assertIn("<svg", pathlib.Path(self.path("vms.html")).read_text(encoding="utf-8"))
        print(process.stdout, file=sys.stderr)


if __name__ == "__main__":
    cli.main()
