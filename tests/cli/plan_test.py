"""`nearmetal plan`: every form of a plan, held against stored ones, schemas, bash and mpirun."""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import time

import jsonschema

import cli

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATA = ROOT / "tests/data/plans"

# Stored plans: name and arguments. NEARMETAL_STORE_PLANS=1 writes them anew, to be read in the diff.
STORED = {
    "two_gpus.txt": ["1x1x2", "1x2x1", "2*(1x1x1)", "--hosts", "a:2"],
    "dell_vms.txt": [str(ROOT / "layouts/dell_vms.json")],
    "mig.txt": [str(ROOT / "layouts/mig.json")],
    "nodes.json": ["2x1x2", "--hosts", "a:2,b:2", "--repeats", "2", "--batch", "64",
                   "--format", "json"],
    "split_host.sh": [str(ROOT / "layouts/split_host.json"), "--hosts", "localhost:4",
                      "--format", "sh"],
    "nodes.slurm": ["1x1x4", "2x1x4", "--hosts", "2*4", "--steps", "200", "--format", "slurm"],
    "named_nodes.slurm": ["2*(1x1x2)", "--hosts", "gpu1:2,gpu2:2", "--format", "slurm"],
    "nodes.mpijob.json": ["1x1x2", "2x1x2", "--hosts", "2*2", "--repeats", "1", "--image",
                          "registry.example/nearmetal:1", "--format", "mpijob"],
    "cpus.txt": ["1x1x2", "2x1x1", "--hosts", "a:0,b:0", "--model", "resnet18", "--verify"],
}

MODULES_ARE_THERE = all(
    (pathlib.Path(cli.EXECUTABLE).parent / f"libnearmetal_{name}.so").exists()
    for name in ("cpu", "mpi"))

# For each argument one line; the report that the real one would print. Fails where it is told to.
# One write for a call, as several may be made at once: printf alone would write line by line.
FAKE_MPIRUN = """#!/bin/bash
call=$(printf '%s\\n' "$@" ---)
cat <<<"$call" >>"$CALLS"
for word; do [[ $word != --batch=13 ]] || exit 6; done
echo '{"fake": "report"}'
"""


def without_remarks(text):
    """Strict JSON; strings stay as they are."""
    return re.sub(r'("(?:\\.|[^"\\])*")|//[^\n]*|/\*.*?\*/', r"\1", text, flags=re.S)


class Plan(cli.CliTest):
    def plan(self, *arguments):
        process = self.call("plan", *arguments)
        self.assertEqual((process.returncode, process.err), (0, ""), arguments)
        return process.out.replace(cli.EXECUTABLE, "/opt/nearmetal")

    def jobs(self, *arguments):
        """All jobs of all layouts, without what depends on who plans, as a script starts them."""
        plan = json.loads(self.plan(*arguments, "--format", "json"))
        jobs = []
        for layout in plan["layouts"]:
            for number, job in enumerate(layout["jobs"], 1):
                several = f", job {number}" if len(layout["jobs"]) > 1 else ""
                words = []
                for word in job["command"]:
                    if word == "--conducted":
                        words += ["--json", "--arm=" + layout["name"] + several]
                    elif word != "--allow-run-as-root":
                        words.append(word)
                jobs.append({**job, "command": words})
        return jobs

    def schema(self, name):
        schema = json.loads(self.call("schema", name).out)
        jsonschema.Draft202012Validator.check_schema(schema)
        return jsonschema.Draft202012Validator(schema)

    def fake(self, name, text):
        os.makedirs(self.path("bin"), exist_ok=True)
        path = self.write(f"bin/{name}", text)
        os.chmod(path, 0o755)
        return path

    def run_script(self, script, **variables):
        """Runs a generated script with a fake mpirun; returns its process and the calls."""
        self.fake("mpirun", FAKE_MPIRUN)
        self.fake("scontrol", '#!/bin/bash\n[[ $2 == hostnames ]] && printf "n7\\nn9\\n"\n')
        environment = {**cli.clean_environment(), "CALLS": self.path("calls"),
                       "PATH": self.path("bin") + ":" + os.environ["PATH"], **variables}
        process = subprocess.run(["bash", self.write("script", script)], cwd=self.folder,
                                 env=environment, capture_output=True, text=True, timeout=60,
                                 check=False)
        calls = pathlib.Path(self.path("calls")).read_text(encoding="utf-8")
        return process, [call.split("\n") for call in calls.split("\n---\n")[:-1]]


class Forms(Plan):
    def test_stored_plans(self):
        for name, arguments in STORED.items():
            with self.subTest(name=name):
                text = self.plan(*arguments).replace(" --allow-run-as-root", "")
                text = re.sub(r'\n *"--allow-run-as-root",', "", text)
                if os.environ.get("NEARMETAL_STORE_PLANS"):
                    (DATA / name).write_text(text, encoding="utf-8")
                self.assertEqual(text, (DATA / name).read_text(encoding="utf-8"))

    def test_json_is_as_its_schema_says(self):
        judge = self.schema("plan")
        for arguments in STORED.values():
            kept = [a for a in arguments if a not in ("--format", "json", "sh", "slurm", "mpijob")]
            kept = [a for a in kept if a != "--image" and not a.startswith("registry")]
            if any("*" in a and a[0].isdigit() and "x" not in a for a in kept):
                continue  # hosts without names
            judge.validate(json.loads(self.plan(*kept, "--format", "json")))

    def test_output_goes_to_a_file(self):
        self.assertEqual(self.plan("1x1x1", "--hosts", "a:1", "--output", "plan.txt"), "")
        self.assertIn("layout 1x1x1", pathlib.Path(self.path("plan.txt")).read_text("utf-8"))
        self.assert_refused(self.call("plan", "1x1x1", "--output", "plan.txt"), 9, "it exists")

    def test_without_layouts_all_gpus_are_reached_by_doubling(self):
        names = {("a:6",): ["1x1x1", "1x1x2", "1x1x4", "1x1x6"], ("a:1",): ["1x1x1"],
                 ("a:2,b:2,c:2",): ["1x1x2", "2x1x2", "3x1x2"]}
        for hosts, expected in names.items():
            plan = json.loads(self.plan("--hosts", *hosts, "--format", "json"))
            self.assertEqual([layout["name"] for layout in plan["layouts"]], expected)
        self.plan()  # this machine, whatever it has

    def test_a_hostfile_of_mpirun(self):
        path = self.write("hostfile", "# two hosts\na slots=2\n\nb slots=2 # the other\n")
        ranks = self.jobs("2x1x2", "--hosts", path)[0]["ranks"]
        self.assertEqual([rank["host"] for rank in ranks], ["a", "a", "b", "b"])

    def test_the_command_line_stands_over_the_file(self):
        path = self.write("a.json", """{"workload": {"steps": 20, "batch": 8, "verify": false},
            "hosts": [{"name": "a", "gpus": 1}],
            "layouts": [{"shape": "1x1x1", "workload": {"batch": 16, "profile": true}}]}""")
        run = self.jobs(path)[0]["command"]
        self.assertEqual(run[run.index("run"):], ["run", "--device=cuda", "--batch=8", "--steps=20",
                                                  "--batch=16", "--profile", "--json",
                                                  "--arm=1x1x1", "--ranks=1"])
        run = self.jobs(path, "--duration", "5s", "--batch", "4")[0]["command"]
        self.assertNotIn("--steps=20", run)
        self.assertEqual(run[-5:], ["--batch=4", "--duration=5s", "--json", "--arm=1x1x1",
                                    "--ranks=1"])


    def test_a_global_batch_is_shared_by_the_ranks_of_a_job(self):
        document = {"hosts": [{"name": "a", "gpus": 4}], "workload": {"global_batch": 96},
                    "layouts": [{"shape": "1x1x1"}, {"shape": "1x1x3"}, {"shape": "2*(1x1x2)"}]}
        plan = json.loads(self.plan(self.write("a.json", json.dumps(document)), "--format", "json"))
        batches = [[word for word in layout["jobs"][0]["command"] if word.startswith("--batch")]
                   for layout in plan["layouts"]]
        self.assertEqual(batches, [["--batch=96"], ["--batch=32"], ["--batch=48"]])

    def test_a_global_batch_that_does_not_come_out_even_is_refused(self):
        hosts = [{"name": "a", "gpus": 4}]
        for layout, fragments in (
                ({"shape": "1x1x3", "workload": {"global_batch": 100}},
                 ["/layouts/0/workload/global_batch", "100 images", "3 ranks"]),
                ({"shape": "1x1x2", "workload": {"global_batch": 64, "batch": 32}},
                 ["/layouts/0/workload/global_batch", "one of them"]),
                ({"shape": "1x1x1+1x1x2", "workload": {"global_batch": 64}},
                 ["/layouts/0/workload/global_batch", "different numbers of ranks"]),
                ({"shape": "1x1x2", "workload": {"global_batch": 0}},
                 ["/layouts/0/workload/global_batch", "0"]),
                ({"shape": "1x1x2", "workload": {"global_batch": "64x"}},
                 ["/layouts/0/workload/global_batch", "64x"])):
            with self.subTest(layout=layout):
                path = self.write("a.json", json.dumps({"hosts": hosts, "layouts": [layout]}))
                self.assert_refused(self.call("plan", path), 2, *fragments)


class Shipped(Plan):
    def files(self):
        files = sorted((ROOT / "layouts").glob("*.json"))
        self.assertGreater(len(files), 3)
        return files

    def test_layout_files_follow_the_schema_and_can_be_planned(self):
        judge = self.schema("layout")
        for path in self.files():
            with self.subTest(path=path.name):
                text = path.read_text(encoding="utf-8")
                document = json.loads(without_remarks(text))
                judge.validate(document)
                hosts = [] if "hosts" in document else ["--hosts", "localhost:4"]
                plan = json.loads(self.plan(str(path), *hosts, "--format", "json"))
                self.assertEqual(len(plan["layouts"]), len(document["layouts"]))
                self.assertEqual(len(plan["launches"]), 5 * len(document["layouts"]))
                self.assertIn(f"nearmetal plan layouts/{path.name}", text)

    def test_the_split_host_is_emulated_where_it_says_so(self):
        plan = json.loads(self.plan(str(ROOT / "layouts/split_host.json"), "--hosts",
                                    "localhost:4", "--format", "json"))
        for layout in plan["layouts"]:
            pretended = "VM" in layout["name"]
            self.assertEqual(layout["kind"], "emulated" if pretended else "measured")


class Scripts(Plan):
    def test_bash_runs_what_the_plan_says(self):
        arguments = ["1x1x2", "2*(1x1x1)", "1x2x1", "--hosts", "a:2", "--repeats", "2"]
        script = self.plan(*arguments, "--format", "sh")
        process, calls = self.run_script(script)
        self.assertEqual(process.returncode, 0, process.stderr)
        expected = sorted(job["command"][1:] for job in self.jobs(*arguments)) * 2
        self.assertEqual(sorted(calls), sorted(expected))
        self.assertIn("launch 6 of 6: ", process.stderr)
        reports = [name for name in os.listdir(self.folder) if name.endswith(".report.json")]
        self.assertEqual(len(reports), 8)
        self.assertIn("2-2--1x1x1--run2-job1.report.json", reports)
        # What is there is never replaced.
        os.remove(self.path("1-1x1x2-run1.report.json"))
        again, all_calls = self.run_script(script)
        self.assertEqual((again.returncode, all_calls), (9, calls))
        self.assertEqual(again.stderr.count("\n"), 1, again.stderr)
        self.assertIn("is there already: nothing is started", again.stderr)

    def test_a_failed_launch_does_not_end_the_others(self):
        path = self.write("a.json", """{"hosts": [{"name": "a", "gpus": 1}], "repeats": 1,
            "order": "listed", "layouts": [
              {"name": "bad", "shape": "1x1x1", "workload": {"batch": 13}},
              {"name": "good", "shape": "1x1x1"}]}""")
        process, calls = self.run_script(self.plan(path, "--format", "sh"))
        self.assertEqual(process.returncode, 6)
        self.assertEqual(len(calls), 2)
        left = [name for name in os.listdir(self.folder) if ".report.json" in name]
        self.assertEqual(left, ["2-good-run1.report.json"], "an empty file is no report")

    def test_no_report_is_lost(self):
        script = self.plan("1x1x1", "--hosts", "a:1", "--repeats", "1", "--format", "sh")
        self.fake("mv", "#!/bin/sh\nexit 1\n")
        process, calls = self.run_script(script)
        self.assertEqual((process.returncode, len(calls)), (9, 1))
        part = self.path("1-1x1x1-run1.report.json.part")
        self.assertEqual(pathlib.Path(part).read_text(encoding="utf-8"), '{"fake": "report"}\n')
        again, all_calls = self.run_script(script)
        self.assertEqual((again.returncode, all_calls), (9, calls), "nothing is started")

    def test_a_script_that_is_ended_keeps_what_its_jobs_still_tell(self):
        script = self.plan("2*(1x1x1)", "--hosts", "a:2", "--repeats", "3", "--format", "sh")
        self.fake("mpirun", "#!/bin/bash\ntrap 'echo partial; kill $!; exit 143' TERM\n"
                            "sleep 60 &\necho >>started\nwait\n")
        environment = {**cli.clean_environment(),
                       "PATH": self.path("bin") + ":" + os.environ["PATH"]}
        for number, code in (signal.SIGTERM, 143), (signal.SIGINT, 130):
            process = subprocess.Popen(["bash", self.write("script", script)], cwd=self.folder,
                                       env=environment, stderr=subprocess.PIPE)
            until = time.monotonic() + 20
            while len(self.lines_of("started")) < 2 and time.monotonic() < until:
                time.sleep(0.02)
            process.send_signal(number)
            process.communicate(timeout=20)
            self.assertEqual(process.returncode, code)
            left = sorted(name for name in os.listdir(self.folder) if ".report.json" in name)
            self.assertEqual(left, [f"1-2--1x1x1--run1-job{job}.report.json" for job in (1, 2)])
            for name in [*left, "started"]:
                os.remove(self.path(name))

    def lines_of(self, name):
        try:
            return pathlib.Path(self.path(name)).read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return []

    def test_slurm_names_the_nodes(self):
        arguments = ["1x1x4", "2x1x4", "--hosts", "2*4", "--repeats", "1", "--format", "slurm"]
        process, calls = self.run_script(self.plan(*arguments), SLURM_JOB_NODELIST="n[7,9]")
        self.assertEqual(process.returncode, 0, process.stderr)
        hosts = sorted(call[call.index("--host") + 1] for call in calls)
        self.assertEqual(hosts, ["n7:4", "n7:4,n9:4"])

    def test_hostile_names_stay_words(self):
        hostile = "$(touch pwned) `touch pwned` '; touch pwned; ' \" \\ \u2028 *?[a] ${PATH} #"
        path = self.write("a.json", json.dumps({
            "hosts": [{"name": "a", "gpus": 1}], "repeats": 1,
            "launcher": {"program": "/opt/" + hostile, "remote_shell": hostile,
                         "variables": {"HOSTILE": hostile}},
            "layouts": [{"name": hostile, "shape": "1x1x1"}]}))
        process, calls = self.run_script(self.plan(path, "--format", "sh"))
        self.assertEqual(process.returncode, 0, process.stderr)
        self.assertEqual(calls, [self.jobs(path)[0]["command"][1:]])
        self.assertIn("HOSTILE=" + hostile, calls[0])
        self.assertIn(hostile, process.stderr)
        manifest = json.loads(self.plan(path, "--format", "mpijob", "--image", hostile))
        launcher = manifest["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]
        self.assertEqual(launcher["containers"][0]["image"], hostile)
        self.assertFalse(os.path.exists(self.path("pwned")))
        self.assertNotIn("\n", re.findall(r"layout (.*): measured", self.plan(path))[0])

    def test_all_are_bash(self):
        for name in ("sh", "slurm"):
            script = self.write(name, self.plan(str(ROOT / "layouts/dell_vms.json"), "--format", name))
            for checker in (["bash", "-n"], ["shellcheck"]):
                if shutil.which(checker[0]):
                    process = subprocess.run([*checker, script], capture_output=True, text=True,
                                             timeout=60, check=False)
                    self.assertEqual((process.returncode, process.stdout, process.stderr),
                                     (0, "", ""), checker)

    def test_the_launcher_of_a_mpi_job_runs_the_script(self):
        manifest = json.loads(self.plan("2x1x2", "--hosts", "2*2", "--repeats", "2", "--image", "i",
                                        "--format", "mpijob"))
        replicas = manifest["spec"]["mpiReplicaSpecs"]
        worker = replicas["Worker"]["template"]["spec"]["containers"][0]
        self.assertEqual(replicas["Worker"]["replicas"], 2)
        self.assertEqual(worker["resources"]["limits"]["nvidia.com/gpu"], 2)
        container = replicas["Launcher"]["template"]["spec"]["containers"][0]
        self.assertEqual(container["command"], ["bash", "-c"])
        process, calls = self.run_script(container["args"][0])
        self.assertEqual(process.returncode, 0, process.stderr)
        self.assertEqual(process.stdout, '{"fake": "report"}\n' * 2)
        self.assertIn("nearmetal-worker-0.nearmetal:2,nearmetal-worker-1.nearmetal:2", calls[0])

    @cli.unittest.skipUnless(shutil.which("mpirun") and MODULES_ARE_THERE,
                             "it needs mpirun, and the modules of the CPU and of MPI")
    def test_a_script_trains(self):
        script = self.plan("1x2x1", "2*(1x1x1)", "--hosts", "localhost:0", "--repeats", "1",
                           "--model", "resnet18", "--image-size", "32", "--batch", "2",
                           "--steps", "3", "--warmup", "1", "--threads", "1", "--format", "sh")
        path = self.write("script", script.replace("/opt/nearmetal", cli.EXECUTABLE))
        process = subprocess.run(["bash", path], cwd=self.folder, env=cli.clean_environment(),
                                 capture_output=True, text=True, timeout=100, check=False)
        self.assertEqual(process.returncode, 0, process.stderr)
        facts = {}
        for name in sorted(os.listdir(self.folder)):
            if name.endswith(".report.json"):
                report = self.report(name)
                arm = report["arms"][0]
                facts[arm["name"]] = (report["kind"], arm["kind"], arm["runs"][0]["world_size"])
        self.assertEqual(facts, {"1x2x1": ("emulated", "emulated", 2),
                                 "2*(1x1x1), job 1": ("measured", "measured", 1),
                                 "2*(1x1x1), job 2": ("measured", "measured", 1)})


if __name__ == "__main__":
    cli.main()
