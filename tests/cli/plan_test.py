"""`nearmetal plan`: every form of a plan, held against stored ones and schemas."""

import json
import os
import pathlib
import re

import cli
import plans
from plans import ROOT

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
    "nodes.mpijob.yaml": ["1x1x2", "2x1x2", "--hosts", "2*2", "--repeats", "1", "--image",
                          "registry.example/nearmetal:1", "--rdma", "rdma/hca_shared_devices_a",
                          "--memory", "64Gi", "--volume-claim", "reports", "--format", "mpijob"],
    "cpus.txt": ["1x1x2", "2x1x1", "--hosts", "a:0,b:0", "--model", "resnet18", "--verify"],
}


# Each with its value.
FORM_OPTIONS = ["--format", "--image", "--rdma", "--memory", "--volume-claim"]


def without_form(arguments):
    kept = list(arguments)
    for option in FORM_OPTIONS:
        if option in kept:
            del kept[kept.index(option):kept.index(option) + 2]
    return kept


def without_remarks(text):
    """Strict JSON; strings stay as they are."""
    return re.sub(r'("(?:\\.|[^"\\])*")|//[^\n]*|/\*.*?\*/', r"\1", text, flags=re.S)


class Fractions(plans.Plan):
    def test_what_would_be_left_out_or_done_twice_is_refused(self):
        cases = [(["--hosts", "a:2,b:2"], "--hosts names 2"),
                 (["--batches", "32,32"], "--batches: it names 32 twice"),
                 (["--neighbours", "copy,copy"], "--neighbours copy,copy names one twice")]
        for arguments, message in cases:
            self.assert_refused(self.call("plan", "--fractions", "2", *arguments), 2, message)

    def test_a_job_that_does_not_fit_names_the_largest_host(self):
        process = self.call("plan", "1x1x9", "--hosts", "a:4,b:8,c:2")
        self.assert_refused(process, 2, "there are 0; the largest, b, has 8")


class Variables(plans.Plan):
    def test_those_of_networks_that_stay_here_are_named(self):
        here = {**cli.clean_environment(), "NCCL_IB_HCA": "mlx5", "UCX_TLS": "rc", "HOME_OF": "x"}
        process = self.call("plan", "2x1x2", "--hosts", "a:2,b:2", "--variable", "NCCL_IB_HCA=mlx5=1",
                            "--variable", "A=", env=here)
        self.assertIn("-x NCCL_IB_HCA=mlx5=1", process.out)
        self.assertIn("-x A= ", process.out)
        self.assertIn("without --variable NAME=VALUE: UCX_TLS\n", process.err)
        alone = self.call("plan", "1x1x1", "--hosts", "localhost:0", env=here)
        self.assertNotIn("UCX_TLS", alone.err)

    def test_what_is_no_variable_is_refused(self):
        for text, message in (("X", "--variable must be NAME=VALUE"), ("9X=1", "'9X' is no name"),
                              ("CUDA_VISIBLE_DEVICES=0", "CUDA_VISIBLE_DEVICES")):
            self.assert_refused(self.call("plan", "1x1x1", "--hosts", "a:1", "--variable", text), 2,
                                message)


class ShippedLayouts(plans.Plan):
    def test_they_are_found_by_name(self):
        path = str(ROOT / "layouts/dell_vms.json")
        for name in ("dell_vms", "dell_vms.json"):
            self.assertEqual(self.plan(name), self.plan(path))
        self.write("dell_vms.json", "{}")
        self.assert_refused(self.call("plan", "dell_vms.json"), 2, "/layouts must be there")
        self.assert_refused(self.call("plan", "./dell_vms"), 2, "./dell_vms: ", "No such file")

    def test_a_layout_may_come_through_standard_input(self):
        path = ROOT / "layouts/dell_vms.json"
        with open(path, encoding="utf-8") as layout:
            process = self.call("plan", "-", stdin=layout)
        self.assertEqual(process.out, self.plan(str(path)), process.err)


class Forms(plans.Plan):
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
            kept = without_form(arguments)
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

    def test_a_layout_overrides_the_file(self):
        path = self.write("a.json", """{"workload": {"steps": 20, "batch": 8, "verify": false},
            "hosts": [{"name": "a", "gpus": 1}],
            "layouts": [{"shape": "1x1x1", "workload": {"batch": 16, "profile": true}}]}""")
        run = self.jobs(path)[0]["command"]
        self.assertEqual(run[run.index("run"):], ["run", "--device=cuda", "--steps=20",
                                                  "--batch=16", "--profile", "--json",
                                                  "--arm=1x1x1", "--ranks=1"])
        path = self.write("b.json", """{"workload": {"profile": true, "zero_init": true},
            "layouts": [{"shape": "1x1x1", "workload": {"profile": false}}]}""")
        run = self.jobs(path)[0]["command"]
        self.assertIn("--zero-init", run)
        self.assertNotIn("--profile", run)

    def test_the_command_line_overrides_both(self):
        path = self.write("a.json", """{"workload": {"steps": 20, "batch": 8, "verify": false},
            "hosts": [{"name": "a", "gpus": 1}],
            "layouts": [{"shape": "1x1x1", "workload": {"batch": 16, "profile": true}}]}""")
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
                 ["/layouts/0/workload/global_batch", "100 samples", "3 ranks"]),
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


    def test_plans_of_a_report_are_for_shares_of_one_size(self):
        shares = [{"way": "mps", "threads_percent": percent} for percent in (25, 75)]
        jobs = [{"instances": [{"host": "a", "gpus": [0]}], "share": share} for share in shares]
        path = self.write("a.json", json.dumps({"hosts": [{"name": "a", "gpus": 1}],
                                                "layouts": [{"name": "x", "jobs": jobs}]}))
        self.assert_refused(self.call("plan", path, "--plans", "r.json"), 2, "a.json: /layouts/0: "
                            "--plans holds for shares of one size", "25 %, 75 %")


class Shipped(plans.Plan):
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
                layouts = len(plan["layouts"])
                self.assertEqual(layouts + len(plan["unsupported"]), len(document["layouts"]))
                self.assertEqual(len(plan["launches"]), 5 * layouts)
                # These two leave out what is not there.
                if path.name not in ("four_models.json", "bert_vit_resnets.json"):
                    self.assertEqual(plan["unsupported"], [])
                self.assertIn(f"nearmetal plan layouts/{path.name}", text)

    def test_the_split_host_is_emulated_where_it_says_so(self):
        plan = json.loads(self.plan(str(ROOT / "layouts/split_host.json"), "--hosts",
                                    "localhost:4", "--format", "json"))
        for layout in plan["layouts"]:
            emulated = "VM" in layout["name"]
            self.assertEqual(layout["kind"], "emulated" if emulated else "measured")


if __name__ == "__main__":
    cli.main()
