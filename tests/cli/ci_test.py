"""What a CI is given: its shell, run as GitHub, GitLab and Jenkins would."""

import json
import os
import pathlib
import re
import subprocess

import yaml

import cli
import consumers
import made_up

ROOT = pathlib.Path(__file__).resolve().parents[2]
CI = ROOT / "scripts" / "ci"
PAGE = (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")

WORK = "--device cpu --model resnet20 --image-size 32 --batch 2 --threads 1 --warmup 1 --steps 2"


def variables_of(text):
    return set(re.findall(r"\bNEARMETAL(?:_[A-Z]+)*\b", text))


class CiTest(cli.CliTest):
    """The shell of each CI."""

    def setUp(self):
        super().setUp()
        self.settings = {"NEARMETAL": cli.EXECUTABLE, "NEARMETAL_RUNS": "3",
                         "NEARMETAL_RUN_OPTIONS": WORK,
                         "NEARMETAL_GATE_OPTIONS": "--no-charts"}

    def shell(self, command, script, variables):
        return subprocess.run([*command], cwd=self.folder, input=script, capture_output=True,
                              env={**cli.clean_environment(), **variables}, text=True,
                              timeout=cli.limit(60), check=False)

    def on_github(self, **inputs):
        """Each step with `run`, with these inputs and the defaults of the others."""
        action = yaml.safe_load((CI / "action.yml").read_text(encoding="utf-8"))
        values = {name: str(given["default"]) for name, given in action["inputs"].items()}
        values.update(inputs)
        (step,) = [each for each in action["runs"]["steps"] if "run" in each]
        environment = {
            name: re.sub(r"\$\{\{ inputs\.([\w-]+) \}\}", lambda found: values[found[1]], value)
            for name, value in step["env"].items()}
        for name in ("GITHUB_STEP_SUMMARY", "GITHUB_OUTPUT"):
            environment[name] = self.path(name)
        environment["GITHUB_ACTION_PATH"] = str(CI)
        self.assertEqual(step["shell"], "bash")
        script = self.write("step.sh", step["run"])
        return self.shell(["bash", "--noprofile", "--norc", "-eo", "pipefail", script], None,
                          environment)

    def on_gitlab(self):
        job = yaml.safe_load((CI / "gitlab.yml").read_text(encoding="utf-8"))[".nearmetal"]
        variables = {**job["variables"], "NEARMETAL_CI": str(CI), **self.settings}
        return self.shell(["bash"], "\n".join(["set -eo pipefail", *job["script"]]), variables), job

    def on_jenkins(self):
        pipeline = (CI / "Jenkinsfile").read_text(encoding="utf-8")
        (command,) = re.findall(r"\bsh '(.*)'", pipeline)
        variables = dict(re.findall(r"(?m)^ +(NEARMETAL\w*) = '(.*)'$", pipeline))
        if not os.path.lexists(self.path("scripts")):
            os.symlink(ROOT / "scripts", self.path("scripts"))
        return self.shell(["sh", "-xe"], command + "\n", {**variables, **self.settings})

    def kept(self):
        return sorted(os.listdir(self.path("nearmetal-ci")))


class Gate(CiTest):
    def make_baseline(self, times):
        """Of runs like those of the gate, but so many times as fast."""
        process = self.call("run", *WORK.split(), "--repeats", "3", "--output", "base.json")
        self.assertEqual(process.returncode, 0, process.err)
        report = self.report("base.json")
        for run in report["arms"][0]["runs"]:
            run["throughput_images_per_second"] *= times
        self.write("base.json", json.dumps(made_up.settled(report)))
        process = self.call("baseline", "add", "main", "base.json")
        self.assertEqual(process.returncode, 0, process.err)

    def test_on_github_a_summary_and_an_output_are_written(self):
        self.make_baseline(0.01)
        options = {"run-options": WORK, "gate-options": "--no-charts"}
        process = self.on_github(program=cli.EXECUTABLE, runs="3", **options)
        self.assertEqual(process.returncode, 0, process.stderr)
        summary = pathlib.Path(self.path("GITHUB_STEP_SUMMARY")).read_text(encoding="utf-8")
        self.assertIn("### nearmetal: gate against main (exit 0)", summary)
        self.assertIn("| FASTER", summary)
        self.assertIn("verdict: pass", process.stdout)
        self.assertEqual(pathlib.Path(self.path("GITHUB_OUTPUT")).read_text("utf-8"),
                         "exit-code=0\n")
        self.assertEqual(self.kept(), ["gate.html", "gate.junit.xml", "gate.md",
                                       "runs.report.json", "runs.txt"])

    def test_runs_that_can_show_nothing_do_not_pass(self):
        """Whatever the runs here, those of the baseline differ by a half."""
        self.make_baseline(1)
        report = self.report("base.json")
        for run, times in zip(report["arms"][0]["runs"], (0.6, 1, 1.5)):
            run["throughput_images_per_second"] *= times
        self.write("wide.json", json.dumps(made_up.settled(report)))
        process = self.call("baseline", "add", "wide", "wide.json")
        self.assertEqual(process.returncode, 0, process.err)
        self.settings["NEARMETAL_BASELINE"] = "wide"
        process, _ = self.on_gitlab()
        self.assertEqual(process.returncode, 3, process.stdout)
        self.assertIn("a drop of 10 % would not be found", process.stdout)
        self.settings["NEARMETAL_GATE_OPTIONS"] = "--no-charts --max-detectable 99%"
        process, _ = self.on_gitlab()
        self.assertEqual(process.returncode, 0, process.stdout)

    def test_on_gitlab_a_slower_program_fails_the_job(self):
        self.make_baseline(100)
        process, job = self.on_gitlab()
        self.assertEqual(process.returncode, 1, process.stderr)
        self.assertIn("SLOWER", process.stdout)
        for path in [*job["artifacts"]["paths"], job["artifacts"]["reports"]["junit"]]:
            self.assertTrue(os.path.exists(self.path(path)), path)
        xml = pathlib.Path(self.path(job["artifacts"]["reports"]["junit"])).read_text(encoding="utf-8")
        consumers.assert_junit(self, xml)
        self.assertNotIn(process.returncode, job["allow_failure"]["exit_codes"])

    def test_on_jenkins_the_first_run_says_how_to_make_a_baseline(self):
        process = self.on_jenkins()
        self.assertEqual(process.returncode, 5, process.stderr)
        (command,) = re.findall(r"There is no baseline yet: (.*)", process.stdout)
        subprocess.run(command.split(), cwd=self.folder, check=True, capture_output=True)
        self.assertTrue(os.path.isdir(self.path("baselines/main")))

    def test_a_run_that_fails_is_the_end_and_keeps_nothing_of_before(self):
        os.mkdir(self.path("nearmetal-ci"))
        self.write("nearmetal-ci/gate.junit.xml", "old")
        process = self.on_github(program=cli.EXECUTABLE, **{"run-options": "--batch none"})
        self.assertEqual(process.returncode, 2)
        self.assertIn("--batch", process.stderr)
        self.assertEqual(self.kept(), ["runs.txt"])
        summary = pathlib.Path(self.path("GITHUB_STEP_SUMMARY")).read_text(encoding="utf-8")
        self.assertIn("the runs failed (exit 2)", summary)
        self.assertRegex(summary, "~~~\nnearmetal: --batch must be .*'none'.*\n~~~\n")
        self.assertEqual(process.stderr.count("--batch must be"), 1)

    def test_only_a_missing_baseline_is_reported_as_one(self):
        options = {"run-options": WORK, "gate-options": "--margin much"}
        process = self.on_github(program=cli.EXECUTABLE, runs="1", **options)
        self.assertEqual(process.returncode, 2, process.stderr)
        summary = pathlib.Path(self.path("GITHUB_STEP_SUMMARY")).read_text(encoding="utf-8")
        self.assertIn("gate against main (exit 2)", summary)
        self.assertIn("nearmetal: --margin must be", summary)
        self.assertNotIn("There is no baseline yet", summary + process.stdout)


class Variables(CiTest):
    """In whatever form they are written: the program notes what it is called with, and succeeds."""

    PROGRAM = """#!/bin/bash
printf '%s|' "$0" "$@" >>calls && echo >>calls
"""
    INPUTS = {"NEARMETAL": "program", "NEARMETAL_BASELINE": "baseline",
              "NEARMETAL_BASELINES": "baselines", "NEARMETAL_RUNS": "runs",
              "NEARMETAL_RUN_OPTIONS": "run-options", "NEARMETAL_GATE_OPTIONS": "gate-options"}

    def each_ci(self, variables):
        """Each that can give these variables: its process, and the calls that it made."""
        self.write_program("bin/nearmetal", self.PROGRAM)
        self.settings = {"NEARMETAL": "bin/nearmetal", **variables}
        inputs = {self.INPUTS.get(name): value for name, value in self.settings.items()}
        for name, start in (("GitHub", lambda: self.on_github(**inputs)),
                            ("GitLab", lambda: self.on_gitlab()[0]), ("Jenkins", self.on_jenkins)):
            if name == "GitHub" and None in inputs:
                continue
            self.write("calls", "")
            process = start()
            lines = pathlib.Path(self.path("calls")).read_text(encoding="utf-8").splitlines()
            yield process, [line.split("|")[:-1] for line in lines]

    def test_options_may_be_on_several_lines(self):
        words = ["--batch", "512", "--model", "*", "$(touch"]
        for text in ("{} {} {} {} {}", "{}  {}\t{} \t{} {}", "{} {}\n{} {}\n{}\n",
                     "\n{}\n{}\n\n{} {}\n{}\n\n", " {}\t\n \n\t{} {} {}\n{} \n "):
            text = text.format(*words)
            for process, (run, gate) in self.each_ci({"NEARMETAL_RUN_OPTIONS": text,
                                                      "NEARMETAL_GATE_OPTIONS": text}):
                self.assertEqual(process.returncode, 0, process.stderr)
                self.assertEqual(run[1:7], ["run", *words])
                self.assertEqual(gate[6:11], words)

    def test_options_with_quotes_are_refused_before_anything_runs(self):
        os.mkdir(self.path("nearmetal-ci"))
        for name in ("NEARMETAL_RUN_OPTIONS", "NEARMETAL_GATE_OPTIONS"):
            for text in ('--title "a b"', "--note it's", "--batch 512 \\\n--model vgg16"):
                self.write("nearmetal-ci/gate.junit.xml", "old")
                for process, calls in self.each_ci({name: text}):
                    self.assertEqual((process.returncode, calls), (2, []))
                    self.assertRegex(process.stderr, rf"(?m)^gate\.sh: {name} has quotes or backslash")
                    self.assertEqual(self.kept(), [])
        summary = pathlib.Path(self.path("GITHUB_STEP_SUMMARY")).read_text(encoding="utf-8")
        self.assertIn("gate.sh: NEARMETAL_RUN_OPTIONS has quotes", summary)

    def test_other_values_are_taken_whole(self):
        value = """a "b"\t'c' $(touch made) * \\d"""
        self.write_program(f"bin/{value}", self.PROGRAM)
        for text in (value, f"{value}\n", f"\n {value}\t\n\n"):
            for process, (run, gate) in self.each_ci({
                    "NEARMETAL": text.replace(value, f"bin/{value}"), "NEARMETAL_BASELINE": text,
                    "NEARMETAL_BASELINES": text, "NEARMETAL_RUNS": text}):
                self.assertEqual(process.returncode, 0, process.stderr)
                self.assertEqual((run[0], gate[0]), (f"bin/{value}",) * 2)
                self.assertEqual(run[run.index("--repeats") + 1], value)
                self.assertEqual(gate[2], value)
                self.assertEqual(gate[gate.index("--baselines") + 1], value)
            for process, (run, _) in self.each_ci({"NEARMETAL_OUTPUT": text}):
                self.assertEqual(process.returncode, 0, process.stderr)
                self.assertEqual(run[run.index("--output") + 1], f"{value}/runs.report.json")
        self.assertFalse(os.path.exists(self.path("made")))

    def test_a_value_of_several_lines_is_refused(self):
        for name in ("NEARMETAL", "NEARMETAL_BASELINE", "NEARMETAL_BASELINES", "NEARMETAL_RUNS",
                     "NEARMETAL_OUTPUT"):
            for process, calls in self.each_ci({name: "one\ntwo\n"}):
                self.assertEqual((process.returncode, calls), (2, []))
                self.assertRegex(process.stderr, rf"(?m)^gate\.sh: {name} has several lines$")

    def test_blank_values_are_the_defaults(self):
        for process, (run, gate) in self.each_ci({"NEARMETAL_BASELINE": " \n",
                                                  "NEARMETAL_BASELINES": "\t",
                                                  "NEARMETAL_RUNS": "\n\n",
                                                  "NEARMETAL_RUN_OPTIONS": "\n",
                                                  "NEARMETAL_GATE_OPTIONS": " "}):
            self.assertEqual(process.returncode, 0, process.stderr)
            self.assertEqual(run[1:4], ["run", "--repeats", "5"])
            self.assertEqual(gate[2:6], ["main", "nearmetal-ci/runs.report.json", "--baselines", "baselines"])


class Templates(cli.CliTest):
    def test_they_set_what_the_script_reads_and_the_page_lists(self):
        known = variables_of((CI / "gate.sh").read_text(encoding="utf-8"))
        for name in ("action.yml", "gitlab.yml", "Jenkinsfile"):
            used = variables_of((CI / name).read_text(encoding="utf-8"))
            self.assertLessEqual(used - {"NEARMETAL_CI"}, known, name)
        self.assertEqual(set(re.findall(r"(?m)^\| `(NEARMETAL\w*)`", PAGE)), known)

    def test_every_input_of_the_action_is_used(self):
        text = (CI / "action.yml").read_text(encoding="utf-8")
        self.assertEqual(set(re.findall(r"\$\{\{ inputs\.([\w-]+) \}\}", text)),
                         set(yaml.safe_load(text)["inputs"]))

    def test_examples_of_the_page_are_taken_by_the_templates(self):
        github, gitlab = [yaml.safe_load(text)
                          for text in re.findall(r"(?s)```yaml\n(.*?)```", PAGE)]
        action = yaml.safe_load((CI / "action.yml").read_text(encoding="utf-8"))
        self.assertLessEqual(set(github["jobs"]["speed"]["steps"][1]["with"]), set(action["inputs"]))
        template = yaml.safe_load((CI / "gitlab.yml").read_text(encoding="utf-8"))
        job = gitlab["speed"]
        self.assertLessEqual(set(job["variables"]), set(template[job["extends"]]["variables"]))


if __name__ == "__main__":
    cli.main()
