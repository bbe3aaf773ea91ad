"""compare, on reports made from one of a released version."""

import copy
import json
import os
import pathlib

import cli
import comparing
import made_up


class Compare(comparing.CompareTest):
    def test_metrics_have_short_names(self):
        base, new = self.runs("base", 1000, count=2), self.runs("new", 1000, count=2, minute=60)
        sides = ["compare", "--base", *base, "--new", *new]
        self.assertEqual(self.json_of(*sides, "--metric", "throughput"), self.json_of(*sides))
        metrics = {row["metric"] for row in self.json_of(*sides, "--metric", "all")["rows"]}
        self.assertLessEqual({"throughput_images_per_second", "median_step_seconds",
                              "prepare_seconds"}, metrics)
        self.assertNotIn("throughput_sequences_per_second", metrics, "there are none")
        self.assertNotIn("p99_step_seconds", metrics, "of fewer than 100 steps")

    def test_rows_come_by_layout_where_asked_for(self):
        for name, minute, speed in (("old.json", 0, 1), ("new.json", 20, 0.9)):
            report = made_up.sweep(minute, False, speed)
            report["arms"].insert(0, {**copy.deepcopy(report["arms"][2]), "name": "1x1x10"})
            report["arms"].reverse()
            self.write(name, json.dumps(made_up.settled(report)))
        rows = self.json_of("compare", "old.json", "new.json", "--sort", "layout")["rows"]
        self.assertEqual([row["arm"] for row in rows], ["1x1x1", "1x1x2", "1x1x4", "1x1x10"])

    def test_verdicts_and_exit_codes(self):
        base = self.runs("base", 1000)
        same = self.runs("same", 1000, minute=60)
        slow = self.runs("slow", 950, minute=120)
        self.assert_verdict(self.call("compare", "--base", *base, "--new", *same), 0, "EQUIVALENT")
        self.assert_verdict(self.call("compare", "--base", *base, "--new", *slow), 0, "SLOWER")
        self.assert_verdict(self.call("compare", base[0], slow[0]), 0, "INCONCLUSIVE")

    def test_json_and_markdown(self):
        base = self.runs("base", 1000)
        slow = self.runs("slow", 950, minute=120)
        sides = ["compare", "--base", *base, "--new", *slow]
        document = self.json_of(*sides)
        row = document["rows"][0]
        self.assertEqual(row["verdict"], "SLOWER")
        self.assertLess(row["difference_interval"]["upper"], -0.02)
        self.assertIsNone(document["gate"])
        self.json_of("compare", base[0], slow[0])
        self.json_of(*sides, "--metric", "median_step_seconds", "set_up_seconds")
        self.assertIn("| SLOWER", self.call(*sides, "--markdown").out)

    def test_other_work_is_exit_4_and_can_be_allowed(self):
        base = self.runs("base", 1000)

        def change(report, _):
            report["invocation"]["config"]["batch"]["value"] = 16
            report["environments"][0]["libraries"]["onednn"] = "3.0"
        other = self.runs("other", 1000, minute=60, change=change)
        sides = ["compare", "--base", *base, "--new", *other]
        process = self.call(*sides)
        self.assert_verdict(process, 4, "NOT-COMPARABLE", "batch", "libraries.onednn")
        self.assertLess(process.out.index("batch"), process.out.index("libraries.onednn"))
        self.assertEqual(len(self.json_of(*sides)["key_differences"]), 2)
        self.assert_verdict(self.call(*sides, "--allow-differ", "batch", "libraries"), 0,
                            "EQUIVALENT")
        process = self.call("gate", *other, *base, "--allow-differ", "kind")
        self.assert_refused(process, 2, "--allow-differ kind is for compare")
        process = self.call(*sides, "--allow-differ", "bacth")
        self.assert_refused(process, 2, "'bacth'", "did you mean 'batch'?")

    def test_an_emulated_split_beside_the_whole_host_is_labelled_in_every_form(self):
        def emulate(report, _):
            report["arms"][0]["kind"] = "emulated"
        sides = ["compare", "--base", *self.runs("base", 1000),
                 "--new", *self.runs("split", 900, minute=60, change=emulate)]
        self.assert_verdict(self.call(*sides), 4, "NOT-COMPARABLE", "measured", "emulated")
        allowed = [*sides, "--allow-differ", "kind"]
        label = "the base is measured, the new set emulated"
        self.assert_verdict(self.call(*allowed), 0, "SLOWER", label)
        self.assertIn(label, self.call(*allowed, "--markdown").out)
        self.assertEqual(self.json_of(*allowed)["rows"][0]["notes"][0]["code"], "kinds_differ")
        self.call(*allowed, "--html", "page.html", "--no-charts")
        self.assertIn(label, pathlib.Path(self.path("page.html")).read_text(encoding="utf-8"))

    def test_no_row_in_common_is_exit_4(self):
        def rename(report, _):
            report["arms"] = [{**report["arms"][0], "name": name} for name in ("1x4", "1x8")]
        process = self.call("compare", "--base", *self.runs("base", 1000), "--new",
                            *self.runs("other", 1000, minute=60, change=rename))
        self.assert_verdict(process, 4, "only in the base", "only in the new set")

    def test_the_vm_form_lists_what_differs(self):
        def bare(report, _):
            report["environments"][0]["hypervisor_cpu_flag"] = False

        def vm(report, _):
            report["environments"][0]["cpu_model"] = "Virtual CPU"
            report["environments"][0]["memory_bytes"] = 1 << 30
        arguments = ["compare", "--bare", *self.runs("bare", 1000, change=bare), "--vm",
                     *self.runs("vm", 990, minute=60, change=vm)]
        process = self.call(*arguments)
        self.assert_verdict(process, 0, "hypervisor_cpu_flag", "memory_bytes", "Virtual CPU")
        self.assertNotIn("published: ", process.out)
        self.assertNotIn("given as bare metal", process.out)
        options = self.json_of(*arguments)["options"]
        self.assertEqual((options["form"], options["vm_form"]), ("vm", True))
        arguments[1], arguments[-7] = "--vm", "--bare"
        process = self.call(*arguments)
        self.assert_verdict(process, 0, "the side given as bare metal shows", "VM, images/s",
                            "than the host with a hypervisor, ", "host with a hypervisor, images/s")
        self.assertNotIn("than bare metal", process.out)

    def test_a_container_is_compared_with_bare_metal(self):
        source = comparing.SOURCE.with_name("report-1.2.json")
        self.source = json.loads(source.read_text(encoding="utf-8"))

        def in_container(name):
            def change(report, _):
                environment = report["environments"][0]
                environment["hypervisor_cpu_flag"] = False
                environment["virtualisation"].update(
                    machine="bare-metal", hypervisor="none", container=name)
            return change
        bare = self.runs("bare", 1000, change=in_container("none"))
        pod = self.runs("pod", 900, minute=60, change=in_container("kubernetes"))
        process = self.call("compare", "--bare", *bare, "--container", *pod, "--html", "pod.html")
        self.assert_verdict(process, 0, "The container is slower than bare metal, -9.71 % [",
                            "virtualisation/container", "kubernetes", "bare metal, images/s",
                            "container, images/s")
        self.assertNotIn("given as", process.out)
        self.assertNotIn("published: ", process.out)
        page = pathlib.Path(self.path("pod.html")).read_text(encoding="utf-8")
        self.assertIn("nearmetal: a container against bare metal", page)
        options = self.json_of("compare", "--bare", *bare, "--container", *pod)["options"]
        self.assertEqual((options["form"], options["vm_form"]), ("container", False))
        process = self.call("compare", "--bare", *pod, "--container", *bare)
        self.assert_verdict(process, 0, "given as bare metal shows a container",
                            "given as a container shows no container")

    def test_a_vm_and_a_container_are_two_comparisons(self):
        one = self.made("one.json", 1000, 0)
        self.assert_refused(self.call("compare", "--bare", one, "--vm", one, "--container", one), 2,
                            "--vm and --container exclude each other", "a separate call")

    def test_what_cannot_be_read_is_exit_5(self):
        good = self.made("good.json", 1000, 0)
        self.assert_refused(self.call("compare", good, self.write("bad.json", "{")), 5, "bad.json")
        self.assert_refused(self.call("gate", "no-such-baseline", good), 5, "no-such-baseline",
                            "neither a report, a folder nor a baseline; baselines/ holds none",
                            "baseline add")

        def fail(report, run):
            run["status"] = "failed"
        failed = self.made("failed.json", 1000, 5, fail)
        self.assert_verdict(self.call("compare", good, failed), 5, "INVALID")

    def test_what_is_read_is_not_replaced(self):
        base, new = self.made("base.json", 1000, 0), self.made("new.json", 1000, 60)
        os.symlink("new.json", self.path("link.json"))
        with open(base, encoding="utf-8") as file:
            text = file.read()
        for command in (("report", base, "--output", "base.json"),
                        ("report", self.folder, "--output", "link.json"),
                        ("compare", base, new, "--html", "base.json"),
                        ("gate", base, new, "--junit", "link.json"),
                        ("run", "--device", "cpu", "--plans", new, "--output", "new.json"),
                        ("sweep", "base.json", "--output", "base.json"),
                        ("plan", "base.json", "--output", "base.json")):
            refused = self.call(*command, "--force")
            self.assertEqual(refused.returncode, 2, (command, refused.err))
        with open(base, encoding="utf-8") as file:
            self.assertEqual(file.read(), text)

    def test_charts_of_a_page_are_drawn_unless_not_asked_for(self):
        environment = {**cli.clean_environment(), "PATH": self.folder}
        base, new = self.runs("base", 1000, minute=0), self.runs("new", 1000, minute=60)
        for drawn, more in ((True, []), (False, ["--no-charts", "--force"])):
            process = self.call("compare", "--base", *base, "--new", *new, "--html", "page.html",
                                *more, env=environment)
            self.assertEqual(process.returncode, 0, process.err)
            page = pathlib.Path(self.path("page.html")).read_text(encoding="utf-8")
            self.assertEqual("<svg" in page, drawn)


if __name__ == "__main__":
    cli.main()
