"""Jobs of different kinds at once: each has a workload of its own, and is told beside itself alone."""

import json
import os
import re
import shutil

import jsonschema

import cli
import consumers

TRAINING = {"model": "resnet20"}
FORWARD = {"model": "resnet18", "forward_only": True}


def job(way, workload):
    return {"instances": [{"host": "localhost"}], "share": {"way": way}, "workload": workload}


def alone(name, workload):
    return {"name": name, "workload": workload,
            "jobs": [{"instances": [{"host": "localhost"}], "share": {"way": "alone"}}]}


def both(name, way, *workloads):
    return {"name": name, "jobs": [job(way, workload) for workload in workloads]}


def tiny_file(*layouts, **more):
    return {"workload": {"image_size": 32, "classes": 10, "batch": 2, "threads": 1, "warmup": 2,
                         "duration": "0.5s"},
            "layouts": list(layouts), "repeats": 2, **more}


MIXED = tiny_file(alone("training alone", TRAINING), alone("forward alone", FORWARD),
                  both("in turn", "serial", TRAINING, FORWARD),
                  both("at once", "timeslice", TRAINING, FORWARD),
                  both("MPS", "mps", TRAINING, FORWARD))


class MixedJobs(cli.SweepTest):
    def setUp(self):
        super().setUp()
        self.cpus = ["--hosts", self.write("hosts", "localhost slots=0\n")]

    def mixed(self, output="s.json"):
        """The sweep of MIXED on CPUs, run once for all tests."""
        shutil.copy(os.path.join(type(self).swept(self), "s.json"), self.path(output))
        return type(self).process

    @classmethod
    def swept(cls, test):
        if not hasattr(cls, "process"):
            path = test.write("mixed.json", json.dumps(MIXED))
            cls.process = test.call("sweep", path, *test.cpus, "--output", "s.json")
            cls.folder = cli.tempfile.mkdtemp()
            cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
            shutil.copy(test.path("s.json"), cls.folder)
        return cls.folder

    def plan_of(self, *layouts, arguments=(), **more):
        path = self.write("layouts.json", json.dumps(tiny_file(*layouts, **more)))
        return self.call("plan", path, *self.cpus, *arguments)

    def test_each_job_is_started_with_its_own_workload(self):
        process = self.plan_of(both("at once", "timeslice", TRAINING, FORWARD, {"stress": "copy"}),
                               arguments=["--format", "json", "--batch", "4"])
        self.assertEqual((process.returncode, process.err), (0, ""))
        commands = [each["command"] for each in json.loads(process.out)["layouts"][0]["jobs"]]
        self.assertIn("--model=resnet20", commands[0])
        self.assertNotIn("--forward-only", commands[0])
        self.assertIn("--model=resnet18", commands[1])
        self.assertIn("--forward-only", commands[1])
        for command in commands[:2]:
            self.assertIn("--batch=4", command, "the command line stands over all")
            self.assertIn("--sharers=3", command)
        self.assertEqual(commands[2][commands[2].index("stress"):],
                         ["stress", "copy", "--device=cpu", "--conducted"])
        text = self.plan_of(both("at once", "timeslice", TRAINING, FORWARD)).out
        self.assertIn("forward_only true, model resnet18\n", text)
        text = self.plan_of(both("at once", "timeslice", TRAINING, FORWARD),
                            arguments=["--model", "resnet34"]).out
        self.assertIn("forward_only true, model resnet34\n", text)
        self.assertNotIn("model resnet18", text)

    def test_bad_workloads_are_exit_2_with_place_and_reason(self):
        place = "layouts.json: /layouts/0/jobs/1/workload"
        cases = [({"modle": "resnet18"}, place + "/modle is no setting of a workload"),
                 ({"batch": "auto"}, "--batch=auto would find another in each"),
                 ({"batch": 0}, place + "/batch: --batch must be an integer"),
                 ({"verify": True}, place + "/verify: it holds for all jobs of a layout"),
                 ({"plans": "r.json"}, place + "/plans: it holds for all jobs of a layout"),
                 ({"model": "resnet19"}, place + "/model: "),
                 ({"forward_only": "maybe"}, place + "/forward_only must be true or false"),
                 ({"launch": "stream"}, place + ": --launch is for GPUs"),
                 ({"stress": "noise"}, place + "/stress must be copy, compute or pcie"),
                 ({"stress": "copy", "batch": 4}, place + "/stress: a job that disturbs trains"),
                 ({"steps": 3, "duration": "2s"}, place + ": --steps and --duration")]
        for workload, message in cases:
            with self.subTest(workload=workload):
                process = self.plan_of(both("x", "timeslice", TRAINING, workload))
                self.assert_refused(process, 2, message)
        process = self.plan_of(both("x", "timeslice", TRAINING, FORWARD),
                               arguments=["--plans", "r.json"])
        self.assert_refused(process, 2, "/layouts/0: --plans holds for one workload")

    def test_what_a_machine_lacks_is_left_out_and_named(self):
        process = self.plan_of(both("x", "mps", TRAINING, FORWARD),
                               both("y", "timeslice", TRAINING, FORWARD))
        self.assertEqual(process.returncode, 0, process.err)
        self.assertIn("x: unsupported: there is no GPU\n", process.out)
        self.assert_refused(self.plan_of(both("x", "mps", TRAINING, FORWARD)), 8,
                            "x: there is no GPU")
        named = both("x", "mps", TRAINING, FORWARD)
        for each in named["jobs"]:
            each["instances"][0]["ranks"] = 1
        path = self.write("layouts.json", json.dumps(tiny_file(named)))
        self.assert_refused(self.call("sweep", path, *self.cpus), 8, "/layouts/0: MPS needs a GPU")

    def test_each_job_is_shown_beside_itself_alone(self):
        process = self.mixed()
        self.assertEqual(process.returncode, 0, process.err)
        report = self.report("s.json")
        jsonschema.validate(report, json.loads(self.call("schema", "report").out))
        self.assertEqual(self.call("validate", "s.json").returncode, 0)
        arms = {arm["name"]: arm for arm in report["arms"]}
        self.assertEqual(arms["MPS"]["unsupported"], "there is no GPU")
        for name in ("in turn", "at once"):
            models = [(one["model"], one["forward_only"]) for one in arms[name]["workloads"]]
            self.assertEqual(models, [("resnet20", False), ("resnet18", True)])
            for run in arms[name]["runs"]:
                self.assertIsNone(run["throughput_images_per_second"])
                self.assertIn("unlike work", run["unknown"]["throughput_images_per_second"])
                flops = sum(one["throughput_images_per_second"] * one["flops_per_image"]
                            for one in run["jobs"])
                self.assertAlmostEqual(run["flops_per_second"], flops, delta=1e-6 * flops)
        self.assertEqual(arms["training alone"]["workloads"], [])
        for row in (r"at once +1 +resnet20 training, fp32, batch 2 +[0-9]",
                    r"at once +2 +resnet18 forward, fp32, batch 2 +[0-9.]+ .*images/s +[0-9]"):
            self.assertRegex(process.out, row)
        self.assertIn("weighted speedup", process.out)
        self.assertIn("MPS: unsupported: there is no GPU\n", process.out)
        self.assertRegex(process.err, r"at once: throughput of each job [0-9.]+ images/s, [0-9]")

    def test_reports_show_each_job_in_every_form(self):
        self.mixed()
        told = self.call("report", "s.json", "--format", "csv")
        self.assertRegex(told.out, r'"at once, job 2",.*throughput_images_per_second.*"resnet18"')
        page = self.call("report", "s.json", "--format", "html", "--output", "s.html")
        self.assertEqual(page.returncode, 0, page.err)
        with open(self.path("s.html"), encoding="utf-8") as file:
            html = file.read()
        for text in ("How much work gets done?", "How fast is each job?",
                     "job 2: resnet18 forward", "Each of unlike jobs, and its speed alone"):
            self.assertIn(text, html)
        for form in ("github", "junit", "prometheus", "go", "google-benchmark",
                     "tf_cnn_benchmarks"):
            process = self.call("report", "s.json", "--format", form)
            self.assertEqual((process.returncode, process.err), (0, ""), form)
            if form in consumers.JUDGES:
                consumers.JUDGES[form](self, process.out)

    def later(self, name, **change):
        """The same figures of another day, with these settings of the second job."""
        report = self.report("s.json")
        for arm in report["arms"]:
            for run in arm["runs"]:
                run["started_at"] = run["started_at"].replace("20", "21", 1)
            if arm["name"] != "at once":
                continue
            workload = arm["workloads"][1]
            times = change.get("batch", workload["batch"]) / workload["batch"]
            workload.update(change)
            for run in arm["runs"]:
                run["jobs"][1]["throughput_images_per_second"] *= times
        return self.write(name, json.dumps(report))

    def test_unlike_jobs_are_compared_one_by_one_and_only_with_the_same(self):
        self.mixed()
        process = self.call("compare", "s.json", self.later("t.json"))
        self.assertEqual(process.returncode, 0, process.err)
        for row in ("training alone", "in turn, job 1", "at once, job 2"):
            self.assertRegex(process.out, r"(?m)^" + row + r" .*0\.0+ %")
        process = self.call("compare", "s.json", self.later("u.json", batch=4), "--json")
        self.assertEqual(process.returncode, 4, process.err)
        rows = {row["arm"]: row["verdict"] for row in json.loads(process.out)["rows"]}
        refused = {name for name, verdict in rows.items() if verdict == "NOT-COMPARABLE"}
        self.assertEqual(refused, {"at once, job 1", "at once, job 2"})
        differences = json.loads(process.out)["key_differences"]
        self.assertEqual([(one["name"], one["base"], one["other"]) for one in differences],
                         [("batch", "2", "2 + 4")])

    def test_the_gate_takes_each_of_unlike_jobs(self):
        self.mixed()
        whole = self.report("s.json")
        whole["arms"] = [arm for arm in whole["arms"] if arm["name"] == "at once"]
        self.write("s.json", json.dumps(whole))
        added = self.call("baseline", "add", "main", "s.json")
        self.assertEqual(added.returncode, 0, added.err)
        rows = json.loads(self.call("gate", "main", self.later("t.json"), "--json").out)["rows"]
        self.assertEqual({row["arm"] for row in rows}, {"at once, job 1", "at once, job 2"})
        self.assertNotIn("NOT-COMPARABLE", {row["verdict"] for row in rows})
        other = self.call("gate", "main", self.later("u.json", model="resnet34"))
        self.assertEqual(other.returncode, 4, other.err + other.out)

    def test_a_rerun_names_what_it_cannot_repeat(self):
        self.mixed()
        self.assert_refused(self.call("rerun", "s.json#at once"), 2,
                            "workloads of their own", "nearmetal sweep")


class FourModels(cli.CliTest):
    def test_the_shipped_layouts_are_for_gpus_and_cpus(self):
        for hosts, device in (("localhost slots=0", "cpu"), ("localhost slots=2", "cuda")):
            path = self.write("hosts", hosts + "\n")
            plan = json.loads(self.call("plan", "four_models", "--hosts", path, "--format",
                                        "json").out)
            slices = next(one for one in plan["layouts"] if one["share"] == "timeslice")
            commands = [" ".join(one["command"]) for one in slices["jobs"]]
            self.assertEqual([re.search("--model=(\\S+)", words)[1] for words in commands],
                             ["resnet50", "resnet18", "vgg16", "resnet50"])
            self.assertEqual(["--inference" in words for words in commands],
                             [False, False, False, True])
            for words in commands:
                self.assertIn("--device=" + device, words)


if __name__ == "__main__":
    cli.main()
