"""Layout files that are wrong, the schema beside the reader, and commands that mpirun really runs."""

import concurrent.futures
import json
import os
import pathlib
import shutil
import subprocess

import jsonschema

import cli

DATA = pathlib.Path(__file__).parent.parent / "data"

# With every key that there is.
FULL = {
    "$schema": "s",
    "hosts": [
        {"name": "a", "address": "127.0.0.1", "node": "n", "environment": "vm", "gpus": 2,
         "numa": [{"cpus": "0-3", "gpus": [0, 1]}]},
        {"name": "b", "environment": "vm", "gpus": 2, "cpus": "0-7",
         "mig": [{"gpu": 0, "uuid": "MIG-00000000-0000-0000-0000-000000000001",
                  "profile": "1g.18gb"}]}],
    "launcher": {"program": "p", "network": "10.0.0.0/8", "remote_shell": "r",
                 "variables": {"V": "v"}},
    "layouts": [
        {"name": "x", "jobs": [{"instances": [{"host": "a", "gpus": [0, 1]}]}],
         "emulate": False, "workload": {"batch": 8},
         "expect": {"environment": "vm", "gpu": "g", "world_size": 2, "mig_config": "c#l",
                    "link": {"rate": "10G"}}},
        {"name": "m", "jobs": [{"instances": [{"host": "b", "gpus": [0]}],
                                "share": {"way": "mig", "profile": "1g.18gb"},
                                "workload": {"model": "resnet18"}}]},
        {"shape": "2*(1x1x1)", "executable": "/bin/true"}],
    "workload": {"model": "resnet50", "batch": "64", "steps": 20, "verify": True,
                 "learning_rate": 0.1},
    "repeats": 2, "order": "listed", "seed": 3,
    "limits": {"start_seconds": 1, "step_seconds": 1.5, "job_seconds": 9},
}

REPLACEMENTS = [None, True, -1, 0, 0.5, 2**53, 1e308, "", "-x", "a\nb", "vm", [], [1], {},
                {"a": 1}]

# Options of `run` that no workload has: help, and what follows from the layout.
NOT_OF_A_WORKLOAD = {"help", "device", "gpu", "output", "force", "json", "quiet", "no-report",
                     "no-progress", "ranks", "emulated", "expect-gpu", "expect-environment",
                     "expect-link", "expect-mig", "expect-uuid", "expect-vgpu", "repeats", "resume",
                     "keep-failed", "allow-other-build", "join-timeout"}

# Stands for nearmetal: says where it is and with which settings. `taskset` comes before it.
WITNESS = """#!/bin/bash
printf '%s %s host=%s gpus=%s vm=%s cpus=%s %s\\n' "$OMPI_COMM_WORLD_RANK" \\
  "$OMPI_COMM_WORLD_SIZE" "${WITNESS_HOST-here}" "${CUDA_VISIBLE_DEVICES-none}" \\
  "${NCCL_HOSTID-none}" "$(taskset -cp $$ | sed 's/.*: //')" "${!#}"
"""

# In place of ssh: the host is this machine under another name, with a session of its own.
REMOTE_SHELL = """#!/bin/bash
while [[ $1 == -* ]]; do shift; done
export WITNESS_HOST=$1 TMPDIR=$PWD/$1
mkdir -p "$TMPDIR"
shift
exec bash -c "$*"
"""


def mutants():
    """Texts of FULL with one change each."""
    for path in list(cli.places(FULL))[1:]:
        for change in [*REPLACEMENTS, "remove", "rename"]:
            mutant = json.loads(json.dumps(FULL))
            parent = mutant
            for key in path[:-1]:
                parent = parent[key]
            if change not in ("remove", "rename"):
                parent[path[-1]] = change
            elif isinstance(parent, dict):
                value = parent.pop(path[-1])
                if change == "rename":
                    parent[str(path[-1]) + "_x"] = value
            yield f"{path}: {change!r}", mutant


class LayoutFile(cli.CliTest):
    def refusal(self, text, *arguments):
        """What stands after the name of the file."""
        process = self.call("plan", self.write("bad.json", text), *arguments)
        self.assert_refused(process, 2, "bad.json: ")
        return process.err.split("bad.json: ", 1)[1].strip()

    def test_what_is_wrong_is_exit_2_with_place_and_reason(self):
        host = '"hosts": [{"name": "a", "gpus": 1}]'
        cases = [
            ("", "not JSON: "),
            ("[" * 10000, "/0/0/0/0/0/0/0/0/0/0/0/0/0/0/0/0 is nested too deeply"),
            ('{"a":' * 10000, "/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a is nested too deeply"),
            (" " * (2 << 20), "it is larger than 1 MiB"),
            ('{"repeats": 1e999}', "not JSON: number overflow"),
            ('{"layouts": [{"shape": "1x1x1"}], "repeats": ' + "9" * 400 + "}", "not JSON: number"),
            ('{"repeats": 1, "repeats": 1}', "/repeats is there twice"),
            ('{%s, "layouts": [{"shape": "1x1x2"}]}' % host, "/layouts/0: job 1 of 1x1x2 needs"),
            ('{%s, "layouts": [{"name": "x", "jobs": [{"instances": [{"host": "a", "gpus": [1]}]}]}]}'
             % host, "/layouts/0/jobs/0/instances/0: 'a' has 1 GPUs, from 0: there is no GPU 1"),
            ('{%s, "layouts": [{"name": "x", "jobs": [{"instances": [{"host": "b", "gpus": [0]}]}]}]}'
             % host, "/layouts/0/jobs/0/instances/0: there is no host 'b'"),
            ('{%s, "workload": {"batch": 0}, "layouts": [{"shape": "1x1x1"}]}' % host,
             "/workload/batch: --batch must be an integer from 1"),
            ('{%s, "layouts": [{"shape": "1x1x1", "workload": {"bacth": 1}}]}' % host,
             "/layouts/0/workload/bacth is no setting of a workload: `nearmetal run` has no --bacth"),
            ('{%s, "workload": {"gpu": 1}, "layouts": [{"shape": "1x1x1"}]}' % host,
             "/workload/gpu is no setting of a workload: the plan sets --gpu itself"),
            ('{%s, "workload": {"verify": 1}, "layouts": [{"shape": "1x1x1"}]}' % host,
             "/workload/verify must be true or false"),
            ('{%s, "workload": {"threads": 1}, "layouts": [{"shape": "1x1x1"}]}' % host,
             "--threads is for CPUs"),
            ('{"hosts": [{"name": "a", "environment": "vm", "gpus": 1}, {"name": "b", "gpus": 1}], '
             '"layouts": [{"shape": "2x1x1"}]}',
             "/layouts/0: its hosts claim different environments: nothing, vm; claim the same of all"),
        ]
        for text, expected in cases:
            with self.subTest(text=text[:100]):
                self.assertTrue(self.refusal(text).startswith(expected), self.refusal(text))

    def test_wrong_command_lines_are_exit_2(self):
        file = self.write("a.json", '{"hosts": [{"name": "a", "gpus": 1}], "layouts": '
                                    '[{"shape": "1x1x1"}]}')
        cases = [
            (["1x1"], ["'x' is expected after '1x1'"]),
            (["1x1x3", "--hosts", "a:2"], ["1x1x3: job 1 of 1x1x3 needs 1 node"]),
            (["1x1x1", "1x1x1", "--hosts", "a:1"], ["two layouts have the name '1x1x1'"]),
            (["none.json"], ["none.json: it cannot be read: No such file"]),
            ([file, "1x1x1"], ["one layout file, or short forms"]),
            ([file, "--hosts", "a:1"], ["names hosts already"]),
            (["--hosts", "a"], ["'a' is no file", "vm0:2,vm1:2"]),
            (["--hosts", "a:1,b"], ["'b' does not say how many GPUs"]),
            (["--hosts", "a:-1"], ["'-1'"]),
            (["--hosts", "-a:1"], ["'-a:1'"]),
            (["--hosts", "a b:1"], ["'a b' is no name"]),
            (["--hosts", "a:1,a:1"], ["another host 'a'"]),
            (["--hosts", "2*4"], ["--format slurm, srun and mpijob"]),
            (["--hosts", "99999*4"], ["from 1 to 4096"]),
            (["--hosts", self.write("hostfile", "a\n")], ["line 1", "NAME slots=GPUS"]),
            (["--hosts", self.write("users", "me@a slots=1\nyou@b slots=1\n")], ["as one user"]),
            (["--hosts", self.write("empty", "# none\n")], ["there is no host"]),
            (["--format", "yaml"], ["text, json, sh, slurm, srun, mpijob"]),
            (["--format", "mpijob"], ["--image"]),
            (["--image", "i"], ["are for --format mpijob"]),
            (["--repeats", "0"], ["--repeats", "'0'"]),
            (["--batch", "0"], ["--batch", "'0'"]),
            (["--steps", "2", "--duration", "2"], ["one of them"]),
            (["1x1x1", "1x1x2", "--hosts", "a:1,b:2", "--format", "mpijob", "--image", "i"],
             ["workers of a MPIJob are alike"]),
        ]
        for arguments, fragments in cases:
            with self.subTest(arguments=arguments):
                self.assert_refused(self.call("plan", *arguments), 2, *fragments)

    def test_the_user_of_a_hostfile_is_the_one_that_ssh_logs_in_as(self):
        file = self.write("hostfile", "me@10.0.0.4 slots = 2\nme@10.0.0.5 slots=2\n")
        process = self.call("plan", "2x1x2", "--hosts", file, "--format", "sh")
        self.assertEqual(process.returncode, 0, process.err)
        self.assertIn("--mca plm_rsh_agent 'ssh -l me' ", process.out)
        self.assertIn("--host 10.0.0.4:2,10.0.0.5:2 ", process.out)

    def test_a_bare_word_is_never_a_file(self):
        for name in ("dell_vms", "plain", "1x1x1"):
            self.write(name, '{"hosts": [{"name": "of_the_file", "gpus": 1}], "layouts": '
                             '[{"shape": "1x1x1"}]}')
        self.write("hosts", "of_the_file slots=1\n")
        for word in (["dell_vms"], ["1x1x1", "--hosts", "a:1"]):
            process = self.call("plan", *word)
            self.assertEqual(process.returncode, 0, process.err)
            self.assertNotIn("of_the_file", process.out)
        for command in ("plan", "sweep", "doctor"):
            self.assert_refused(self.call(command, "plain"), 2, "plain: no layout of that name",
                                "there is a file of that name: write ./plain")
        shutil.copy(DATA / "report-1.0.json", self.path("r.json"))
        for command in (["plan", "1x1x1"], ["sweep", "1x1x1"], ["rerun", "r.json"]):
            self.assert_refused(self.call(*command, "--hosts", "hosts"), 2, "'hosts' is no list",
                                "there is a file of that name: write ./hosts")
        for words in (["./dell_vms"], ["./1x1x1"], ["1x1x1", "--hosts", "./hosts"],
                      ["1x1x1", "--hosts", self.path("hosts")]):
            process = self.call("plan", *words)
            self.assertEqual(process.returncode, 0, process.err)
            self.assertIn("of_the_file", process.out)

    def test_what_the_schema_refuses_the_reader_refuses(self):
        judge = jsonschema.Draft202012Validator(json.loads(self.call("schema", "layout").out))
        judge.validate(FULL)
        named = list(mutants())

        def planned(index):
            path = self.write(f"{index}.json", json.dumps(named[index][1]))
            process = self.call("plan", path, "--format", "json")
            return process.returncode, process.err

        self.assertEqual(self.call("plan", self.write("full.json", json.dumps(FULL))).returncode, 0)
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            results = list(pool.map(planned, range(len(named))))
        beyond = accepted = refused = 0
        for (name, mutant), (code, error) in zip(named, results):
            self.assertIn(code, (0, 2, 8), name + error)
            valid = judge.is_valid(mutant)
            if not valid:
                self.assertEqual(code, 2, name)
                self.assertRegex(error, r"json: (/|\S+ must be)", name)
                refused += 1
            elif code != 0:
                # An error that no schema can find: a wrong value of a setting, contradictions, what
                # is absent (8 for a MIG device).
                self.assertNotRegex(error, r"json: /\S* (must be|is not known)", name)
                beyond += 1
            else:
                accepted += 1
        self.assertGreater(refused, 400)
        self.assertGreater(accepted, 20)
        self.assertLess(beyond, 100)

    def test_the_schema_knows_all_settings(self):
        schema = json.loads(self.call("schema", "layout").out)
        options = set()
        for line in self.call("run", "--help").out.splitlines():
            words = line.split()
            if words and words[0].startswith(("-h,--help", "--")):
                options.add(words[0].split(",")[-1][2:])
        settings = {name.replace("_", "-") for name in schema["$defs"]["workload"]["properties"]}
        self.assertGreater(len(settings), 15)
        self.assertEqual(settings - {"global-batch"}, options - NOT_OF_A_WORKLOAD)


@cli.unittest.skipUnless(shutil.which("mpirun"), "there is no mpirun")
class Mpirun(cli.CliTest):
    """Open MPI starts each rank where the plan says, with its settings."""

    def launch(self, layout, hosts):
        for name, text in (("witness", WITNESS), ("shell", REMOTE_SHELL)):
            os.chmod(self.write(name, text), 0o755)
        path = self.write("a.json", json.dumps({
            "hosts": hosts, "layouts": [layout],
            "launcher": {"program": self.path("witness"), "remote_shell": self.path("shell")}}))
        process = self.call("plan", path, "--format", "json")
        self.assertEqual(process.returncode, 0, process.err)
        lines = []
        for job in json.loads(process.out)["layouts"][0]["jobs"]:
            done = subprocess.run(job["command"], cwd=self.folder, capture_output=True, text=True,
                                  stdin=subprocess.DEVNULL, timeout=cli.limit(60), check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            lines.append(sorted(done.stdout.splitlines()))
        return lines

    def test_over_hosts(self):
        hosts = [{"name": f"vm{i}", "gpus": 2} for i in range(3)]
        cpus = subprocess.run(["taskset", "-cp", str(os.getpid())], capture_output=True, text=True,
                              check=True).stdout.split(": ")[1].strip()
        rest = f"vm=none cpus={cpus} --ranks="
        self.assertEqual(self.launch({"shape": "2x1x2"}, hosts),
                         [[f"{2 * i + k} 4 host=vm{i} gpus=0,1 {rest}4"
                           for i in range(2) for k in range(2)]])
        jobs = [{"instances": [{"host": "vm2", "gpus": [1]}, {"host": "vm0", "gpus": [0, 1]}]},
                {"instances": [{"host": "vm1", "gpus": [1, 0]}]}]
        self.assertEqual(self.launch({"name": "x", "jobs": jobs}, hosts),
                         [[f"0 3 host=vm2 gpus=1 {rest}3", f"1 3 host=vm0 gpus=0,1 {rest}3",
                           f"2 3 host=vm0 gpus=0,1 {rest}3"],
                          [f"0 2 host=vm1 gpus=1,0 {rest}2", f"1 2 host=vm1 gpus=1,0 {rest}2"]])

    def test_split_and_limited_hosts(self):
        first, second = sorted(os.sched_getaffinity(0))[:2]
        both = {"name": "localhost", "gpus": 2, "cpus": f"{first},{second}"}
        self.assertEqual(
            self.launch({"shape": "1x2x1", "emulate": True}, [both]),
            [[f"0 2 host=here gpus=0 vm=localhost-vm0 cpus={first} --gpu=0",
              f"1 2 host=here gpus=1 vm=localhost-vm1 cpus={second} --gpu=0"]])
        self.assertEqual(
            self.launch({"shape": "1x1x2"}, [{**both, "gpus": 0}]),
            [[f"0 2 host=here gpus=none vm=none cpus={first} --expect-cpus={first}",
              f"1 2 host=here gpus=none vm=none cpus={second} --expect-cpus={second}"]])


if __name__ == "__main__":
    cli.main()
