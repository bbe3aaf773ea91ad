"""The scripts of `nearmetal plan`, run by bash, with a stand-in for mpirun and with the real one."""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess

import yaml

import cli
import plans

MODULES_ARE_THERE = all(
    (pathlib.Path(cli.EXECUTABLE).parent / f"libnearmetal_{name}.so").exists()
    for name in ("cpu", "mpi"))

REPORT = pathlib.Path(__file__).parents[1] / "data" / "report-1.2.json"

# For each argument one line; a report, as the real one would print. Fails where it is told to.
# One write for a call, as several may be made at once: printf alone would write line by line.
FAKE_MPIRUN = """#!/bin/bash
call=$(printf '%s\\n' "$@" ---)
cat <<<"$call" >>"$CALLS"
echo "$TMPDIR" >>"$CALLS.folders"
for word; do [[ $word != --batch=13 ]] || exit 6; done
cat "$REPORT"
"""


class Scripts(plans.Plan):
    def fake(self, name, text):
        os.makedirs(self.path("bin"), exist_ok=True)
        path = self.write(f"bin/{name}", text)
        os.chmod(path, 0o755)
        return path

    def here(self, script):
        """A script whose program is on this machine, too."""
        return script.replace("/opt/nearmetal", cli.EXECUTABLE)

    def run_script(self, script, **variables):
        """Runs a generated script with a fake mpirun; returns its process and the calls."""
        self.fake("mpirun", FAKE_MPIRUN)
        self.fake("scontrol", '#!/bin/bash\n[[ $2 == hostnames ]] && printf "n7\\nn9\\n"\n')
        environment = {**cli.clean_environment(), "CALLS": self.path("calls"), "REPORT": str(REPORT),
                       "PATH": self.path("bin") + ":" + os.environ["PATH"], **variables}
        process = subprocess.run(["bash", self.write("script", script)], cwd=self.folder,
                                 env=environment, capture_output=True, text=True, timeout=cli.limit(60),
                                 check=False)
        calls = pathlib.Path(self.path("calls")).read_text(encoding="utf-8")
        return process, [call.split("\n") for call in calls.split("\n---\n")[:-1]]

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
        folders = set(self.lines_of("calls.folders"))
        self.assertEqual(len(folders), 2, "jobs that run at once have a TMPDIR of their own")
        self.assertFalse([folder for folder in folders if os.path.exists(folder)])
        # An existing file is never replaced.
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
        self.assertEqual(pathlib.Path(part).read_bytes(), REPORT.read_bytes())
        again, all_calls = self.run_script(script)
        self.assertEqual((again.returncode, all_calls), (9, calls), "nothing is started")

    def test_a_script_that_is_ended_keeps_what_its_jobs_still_report(self):
        script = self.here(self.plan("2*(1x1x1)", "--hosts", "a:2", "--repeats", "3", "--format", "sh"))
        environment = {**cli.clean_environment(), "REPORT": str(REPORT),
                       "PATH": self.path("bin") + ":" + os.environ["PATH"]}
        whole = 'cat "$REPORT"'
        cut = 'head -c 10240 "$REPORT"; cp "$REPORT" "$NEARMETAL_LAST_REPORT"'
        for number, code, last_words in ((signal.SIGTERM, 143, whole), (signal.SIGTERM, 143, cut),
                                         (signal.SIGINT, 130, cut), (signal.SIGHUP, 129, whole)):
            self.fake("mpirun", f"#!/bin/bash\ntrap '{last_words}; kill $!; exit 143' TERM\n"
                                "sleep 60 &\necho >>started\nwait\n")
            process = subprocess.Popen(["bash", self.write("script", script)], cwd=self.folder,
                                       env=environment, stderr=subprocess.PIPE)
            self.assertTrue(cli.wait_until(lambda: len(self.lines_of("started")) == 2, 20))
            process.send_signal(number)
            process.communicate(timeout=cli.limit(20))
            self.assertEqual(process.returncode, code)
            left = sorted(name for name in os.listdir(self.folder) if ".report.json" in name)
            self.assertEqual(left, [f"1-2--1x1x1--run1-job{job}.report.json" for job in (1, 2)])
            for name in left:
                self.assertEqual(pathlib.Path(self.path(name)).read_bytes(), REPORT.read_bytes())
            for name in [*left, "started"]:
                os.remove(self.path(name))

    def test_what_is_no_report_is_not_published(self):
        script = self.here(self.plan("1x1x1", "--hosts", "a:1", "--repeats", "1", "--format", "sh"))
        self.fake("mpirun", '#!/bin/bash\nhead -c 10240 "$REPORT"\n')
        environment = {**cli.clean_environment(), "REPORT": str(REPORT),
                       "PATH": self.path("bin") + ":" + os.environ["PATH"]}
        process = subprocess.run(["bash", self.write("script", script)], cwd=self.folder, env=environment,
                                 capture_output=True, text=True, timeout=cli.limit(20), check=False)
        left = [name for name in os.listdir(self.folder) if ".report.json" in name]
        self.assertEqual(left, ["1-1x1x1-run1.report.json.part"])
        self.assertIn("1-1x1x1-run1.report.json.part is not a valid report: ", process.stderr)

    @cli.unittest.skipUnless(shutil.which("mpirun") and MODULES_ARE_THERE, "there is no mpirun")
    def test_a_remote_shell_that_hangs_ends_with_the_script(self):
        shell = self.fake("shell", "#!/bin/sh\necho $$ >>pids\nexec sleep 600\n")
        script = self.plan(self.write("a.json", json.dumps({
            "hosts": [{"name": "a", "address": "10.1.2.3", "gpus": 1},
                      {"name": "b", "address": "10.1.2.4", "gpus": 1}],
            "launcher": {"remote_shell": shell}, "layouts": [{"shape": "2x1x1"}]})),
            "--format", "sh")
        process = subprocess.Popen(["bash", self.write("script", script)], cwd=self.folder,
                                   env=cli.clean_environment(), stderr=subprocess.PIPE)
        self.assertTrue(cli.wait_until(lambda: len(self.lines_of("pids")) == 2, 20))
        process.send_signal(signal.SIGHUP)
        process.communicate(timeout=cli.limit(30))
        self.assertEqual(process.returncode, 129)
        def left():
            return [pid for pid in self.lines_of("pids") if os.path.exists(f"/proc/{pid}")]
        self.assertTrue(cli.wait_until(lambda: not left(), 5), f"processes are left: {left()}")

    def lines_of(self, name):
        try:
            return pathlib.Path(self.path(name)).read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return []

    def test_srun_starts_what_it_can(self):
        script = self.plan("2x1x4", "--hosts", "2*4", "--repeats", "1", "--format", "srun", "--image", "a/b:1")
        (line,) = (line for line in script.splitlines() if " srun " in line)
        for words in ("--mpi=pmix", "--nodes=2 --ntasks=8 --ntasks-per-node=4", "--gpus-per-node=4",
                      "--container-image=a/b:1 nearmetal run "):
            self.assertIn(words, line)
        self.assertNotIn("CUDA_VISIBLE_DEVICES", line)  # Slurm says which GPUs a step has
        for layout, hosts, why in (("2*(1x1x1)", "1*2", "one job at a time on a host"),
                                   ("1x1x2+1x1x1", "a:2,b:2", "")):
            process = self.call("plan", layout, "--hosts", hosts, "--format", "srun")
            self.assertEqual(process.returncode, 2 if why else 0, process.err)
            self.assertIn(why, process.err)

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
        manifest = yaml.safe_load(self.plan(path, "--format", "mpijob", "--image", "n"))
        launcher = manifest["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]
        self.assertIn("\u2028 *?[a] ", launcher["containers"][0]["args"][0])
        self.assertFalse(os.path.exists(self.path("pwned")))
        self.assertNotIn("\n", re.findall(r"layout (.*): measured", self.plan(path))[0])

    def test_all_are_bash(self):
        for name in ("sh", "slurm", "srun"):
            layouts = ["2x1x2", "--hosts", "a:2,b:2"] if name == "srun" else [
                str(plans.ROOT / "layouts/dell_vms.json")]
            script = self.write(name, self.plan(*layouts, "--format", name))
            for checker in (["bash", "-n"], ["shellcheck"]):
                if shutil.which(checker[0]):
                    process = subprocess.run([*checker, script], capture_output=True, text=True,
                                             timeout=cli.limit(60), check=False)
                    self.assertEqual((process.returncode, process.stdout, process.stderr),
                                     (0, "", ""), checker)

    def test_the_launcher_of_a_mpi_job_runs_the_script(self):
        manifest = yaml.safe_load(self.plan("2x1x2", "--hosts", "2*2", "--repeats", "2", "--image",
                                            "i", "--volume-claim", "r", "--format", "mpijob"))
        replicas = manifest["spec"]["mpiReplicaSpecs"]
        worker = replicas["Worker"]["template"]["spec"]["containers"][0]
        self.assertEqual(replicas["Worker"]["replicas"], 2)
        self.assertEqual(worker["resources"]["limits"]["nvidia.com/gpu"], 2)
        container = replicas["Launcher"]["template"]["spec"]["containers"][0]
        self.assertEqual(container["command"], ["bash", "-c"])
        script = re.sub(r"\$\$", "$", container["args"][0])  # as Kubernetes reads it
        process, calls = self.run_script(script)
        self.assertEqual(process.returncode, 0, process.stderr)
        folders = [name for name in os.listdir(self.folder) if re.fullmatch(r"\d{8}T\d{6}Z", name)]
        self.assertEqual(len(os.listdir(self.path(folders[0]))), 2)
        self.assertEqual(process.stdout, REPORT.read_text(encoding="utf-8") * 2)
        self.assertIn("nearmetal-worker-0.nearmetal:2,nearmetal-worker-1.nearmetal:2", calls[0])

    def test_a_mpi_job_that_is_deleted_prints_what_is_through(self):
        manifest = yaml.safe_load(self.plan("1x1x2", "--hosts", "1*2", "--repeats", "2", "--image", "i",
                                            "--format", "mpijob"))
        launcher = manifest["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]
        script = self.write("script", re.sub(r"\$\$", "$", launcher["containers"][0]["args"][0]))
        self.fake("mpirun", f"#!/bin/sh\n[ -e first ] && exec sleep 60\ntouch first\ncat '{REPORT}'\n")
        environment = {**cli.clean_environment(), "PATH": self.path("bin") + ":" + os.environ["PATH"]}
        process = subprocess.Popen(["bash", script], cwd=self.folder, env=environment, text=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        through = "1-1x1x2-run1.report.json", "1-1x1x2-run2.report.json"
        self.assertTrue(cli.wait_until(lambda: any(os.path.exists(self.path(name)) for name in through), 10))
        process.terminate()  # as a kubelet does
        out, err = process.communicate(timeout=cli.limit(30))
        self.assertEqual((process.returncode, out), (143, REPORT.read_text(encoding="utf-8")), err)
        pod = "".join(f"2026-11-29T10:00:00.000000000Z {line}\n" for line in (err + out).splitlines())
        self.assertEqual(self.call("report", self.write("pod.log", pod)).returncode, 0, "with --timestamps")

    @cli.unittest.skipUnless(shutil.which("mpirun") and MODULES_ARE_THERE,
                             "it needs mpirun, and the modules of the CPU and of MPI")
    def test_a_script_trains(self):
        script = self.plan("1x2x1", "2*(1x1x1)", "--hosts", "localhost:0", "--repeats", "1",
                           "--model", "resnet20", "--image-size", "32", "--batch", "2",
                           "--steps", "3", "--warmup", "1", "--threads", "1", "--format", "sh")
        path = self.write("script", script.replace("/opt/nearmetal", cli.EXECUTABLE))
        process = subprocess.run(["bash", path], cwd=self.folder, env=cli.clean_environment(),
                                 capture_output=True, text=True, timeout=cli.limit(100), check=False)
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

    @cli.unittest.skipUnless(shutil.which("mpirun") and MODULES_ARE_THERE,
                             "it needs mpirun, and the modules of the CPU and of MPI")
    def test_later_runs_of_a_script_take_what_the_first_chose(self):
        script = self.plan("1x1x2", "--hosts", "localhost:0", "--repeats", "2", "--pipeline", "2",
                           "--micro-batches", "2", "--model", "resnet20", "--image-size", "32",
                           "--batch", "2", "--steps", "3", "--warmup", "1", "--threads", "1",
                           "--format", "sh")
        path = self.write("script", script.replace("/opt/nearmetal", cli.EXECUTABLE))
        process = subprocess.run(["bash", path], cwd=self.folder, env=cli.clean_environment(),
                                 capture_output=True, text=True, timeout=cli.limit(100), check=False)
        self.assertEqual(process.returncode, 0, process.stderr)
        self.assertEqual(process.stderr.count("cut behind"), 1, process.stderr)
        first, second = (self.report(f"1-1x1x2-run{i}.report.json")["invocation"] for i in (1, 2))
        cuts = first["config"]["cuts"]["value"]
        self.assertEqual([word for word in second["argv"] if word not in first["argv"]],
                         [f"--cuts={cuts}"])


if __name__ == "__main__":
    cli.main()
