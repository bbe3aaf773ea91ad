"""Help, version, and what is refused before anything runs."""

import json
import os
import re
import shutil

import cli


class Help(cli.CliTest):
    def test_the_program_lists_its_commands(self):
        process = self.call("--help")
        self.assertEqual(process.returncode, 0)
        for word in ("run", "validate", "schema", "--version", "Exit codes", "nearmetal run"):
            self.assertIn(word, process.out)
        self.assertEqual(process.err, "")

    def test_it_is_found_as_in_git_and_cargo(self):
        usual = [(["help"], ["--help"]), ([], ["--help"]), (["help", "run"], ["run", "--help"]),
                 (["help", "baseline", "add"], ["baseline", "add", "--help"]),
                 (["version"], ["--version"]), (["-V"], ["--version"])]
        for arguments, same in usual:
            with self.subTest(arguments=arguments):
                process = self.call(*arguments)
                self.assertEqual((process.returncode, process.err), (0, ""))
                self.assertEqual(process.out, self.call(*same).out)

    def test_models_lists_every_network(self):
        process = self.call("models")
        self.assertEqual((process.returncode, process.err), (0, ""))
        rows = {line.split()[0]: line.split()[1:] for line in process.out.splitlines()[1:]}
        self.assertEqual(rows["resnet50"], ["image", "25557032", "8.18", "24.30"])
        smaller = self.call("models", "--image-size", "64").out
        self.assertEqual(len(smaller.splitlines()), len(rows) + 1)
        self.assertNotIn(" 8.18 ", smaller)
        self.assert_refused(self.call("models", "--image-size", "0"), 2, "--image-size")

    def test_models_says_which_network_does_not_take_the_size(self):
        process = self.call("models", "--image-size", "40")
        self.assertEqual((process.returncode, process.err), (0, ""))
        self.assertRegex(process.out, r"\nvit_b_16 +image +- +- +-\n")
        self.assertRegex(process.out, r"\nvit_b_16 cuts images .* 40 is no multiple of 16\n")
        self.assertRegex(process.out, r"\nvgg16 +image +\d+ ")

    def test_differences_of_vgg_from_torchvision_are_stated(self):
        self.assertRegex(self.call("models", "--help").out, r"dropout of VGG, ViT and BERT has\s+prob")
        self.assertIn("classifier.0.weight", self.call("export", "--help").out)

    def test_run_lists_its_options_with_defaults(self):
        process = self.call("run", "--help")
        self.assertEqual(process.returncode, 0)
        for word in ("Usage: nearmetal run", "--batch N|auto", "[224]", "[resnet50]", "Examples"):
            self.assertIn(word, process.out)

    def test_doctor_points_to_the_comparison_that_it_belongs_to(self):
        self.assertIn("`nearmetal help vm`", self.call("doctor", "--help").out)

    def test_no_line_is_wider_than_a_terminal(self):
        for arguments in (["--help"], ["run", "--help"], ["compare", "--help"], ["gate", "--help"],
                          ["baseline", "--help"], ["rerun", "--help"], ["report", "--help"],
                          ["plan", "--help"], ["doctor", "--help"]):
            for line in self.call(*arguments).out.splitlines():
                self.assertLessEqual(len(line), 100, line)

    def test_no_help_text_needs_the_line_before_it(self):
        commands = re.findall(r"(?m)^  (\w+) {5,}", self.call("--help").out.split("Subcommands:")[1])
        self.assertGreater(len(commands), 15)
        for command in [[name] for name in commands] + [["baseline", "add"], ["import", "pairs"]]:
            options = self.call(*command, "--help").out.split("\nExample")[0]
            for line in options.splitlines():
                text = line[36:] if line[:36].endswith(" ") else ""
                self.assertNotRegex(text, r"^(of|that|what|which|those|behind)\b", f"{command}")

    def test_version_prints_commit_and_backends(self):
        process = self.call("--version")
        self.assertEqual(process.returncode, 0)
        self.assertRegex(process.out, r"(?m)^nearmetal \d+\.\d+\.\d+$")
        self.assertRegex(process.out, r"(?m)^commit ([0-9a-f]{40}|unknown)")
        self.assertRegex(process.out, r"(?m)^built as \w+ by ")
        self.assertRegex(process.out, r"(?m)^backend cpu: ")
        self.assertRegex(process.out, r"(?m)^backend cuda: ")
        self.assertRegex(process.out, r"(?m)^between GPUs: ")

    def test_the_schema_is_json(self):
        for arguments in (["schema"], ["schema", "report"]):
            process = self.call(*arguments)
            self.assertEqual(process.returncode, 0)
            self.assertIn("2020-12", json.loads(process.out)["$schema"])


class Refusals(cli.CliTest):
    def test_wrong_usage_is_exit_2(self):
        cases = [
            (["rnu"], ["unknown command 'rnu'", "did you mean 'run'?"]),
            (["run", "--bacth", "4"], ["unknown option '--bacth'", "did you mean '--batch'?"]),
            (["run", "--frobnicate"], ["unknown option '--frobnicate'", "nearmetal run --help"]),
            (["run", "surplus"], ["unknown argument 'surplus'"]),
            (["run", "--batch"], ["--batch"]),
            (["run", "--batch", "0"], ["--batch", "'0'", "from 1"]),
            (["run", "--batch", "-8"], ["--batch", "'-8'"]),
            (["run", "--batch", "many"], ["--batch", "'many'"]),
            (["run", "--steps", "0"], ["--steps", "'0'"]),
            (["run", "--steps", "2", "--duration", "3"], ["one of them"]),
            (["run", "--duration", "2y"], ["--duration", "'2y'"]),
            (["run", "--image-size", "0"], ["--image-size", "'0'"]),
            (["run", "--classes", "1"], ["--classes", "'1'"]),
            (["run", "--learning-rate", "-0.1"], ["--learning-rate", "'-0.1'"]),
            (["run", "--model", "resnet51"], ["did you mean 'resnet50'?"]),
            (["run", "--precision", "fp61"], ["did you mean 'fp16'?"]),
            (["run", "--device", "gpu"], ["did you mean 'cuda'? (auto, cpu, cuda)"]),
            (["--json", "run"], ["--json goes behind the command: nearmetal run --json"]),
            (["help", "rnu"], ["did you mean 'run'?"]),
            (["plan", "dell_vm"], ["did you mean 'dell_vms'?"]),
            (["run", "--device", "cpu", "--launch", "graph"], ["--launch"]),
            (["run", "--device", "cpu", "--batch", "1", "--image-size", "32"], ["too small"]),
            (["run", "--verify", "--forward-only"], ["--verify"]),
            (["schema", "nonsense"], ["'nonsense'"]),
            (["validate"], ["FILE"]),
            (["rerun", "a.json", "b.json"], ["rerun takes one report, not 2"]),
            (["compare", "a", "b", "--margin", "2"], ["did you mean 2%?"]),
            (["export", "--device", "cpu"], ["--device", "add --steps N, or leave it out"]),
            (["export", "--device", "cpu", "--loss-scale", "1"], ["--device and --loss-scale"]),
        ]
        for arguments, fragments in cases:
            with self.subTest(arguments=arguments):
                self.assert_refused(self.call(*arguments), 2, *fragments)
                self.assertEqual(os.listdir(self.folder), [])

    def test_options_end_at_two_dashes(self):
        data = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data")
        shutil.copy(os.path.join(data, "report-1.0.json"), self.path("--odd.json"))
        process = self.call("validate", "--", "--odd.json")
        self.assertEqual((process.returncode, process.err), (0, ""))
        self.assert_refused(self.call("run", "--", "--batch"), 2, "'--batch'")

    def test_standard_input_is_read_once_and_not_by_ranks(self):
        data = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data")
        for arguments in (["validate", "-"], ["report", "-"], ["compare", "-", "one.json"]):
            with open(os.path.join(data, "report-1.0.json"), encoding="utf-8") as report:
                self.write("one.json", report.read().replace("T12", "T13"))
                report.seek(0)
                process = self.call(*arguments, stdin=report)
            self.assertEqual(process.returncode, 0, process.err)
        with open(self.path("one.json"), encoding="utf-8") as report:
            process = self.call("compare", "-", "-", stdin=report)
        self.assert_refused(process, 2, "can be read once")
        self.assert_refused(self.call("run", "--plans", "-"), 2, "--plans", "not standard input")

    def test_paths_are_checked_before_the_run(self):
        cases = [
            ("none/report.json", ["there is no folder none"]),
            (self.folder, ["it is a folder"]),
            (self.write("old.json", "precious"), ["it exists; --force replaces it"]),
            ("/proc/report.json", ["cannot write /proc/report.json"]),
        ]
        for path, fragments in cases:
            with self.subTest(path=path):
                process = self.call("run", "--device", "cpu", "--output", path)
                self.assert_refused(process, 9, *fragments)
        self.assertEqual(os.listdir(self.folder), ["old.json"])

    def test_a_report_that_is_not_one_is_exit_5(self):
        for content in ("", "{", "[]", '{"schema": "nearmetal/report"}', "\x00"):
            with self.subTest(content=content):
                process = self.call("validate", self.write("bad.json", content))
                self.assert_refused(process, 5, "bad.json is not a valid report")
        self.assert_refused(self.call("validate", "none.json"), 5, "none.json cannot be read")
        self.assertIn("No such file", self.call("validate", "none.json").err)

    def test_a_folder_is_distinguished_from_a_missing_file(self):
        os.mkdir(self.path("folder"))
        self.assert_refused(self.call("validate", "folder"), 5, "folder holds no report (*.json)")
        self.assert_refused(self.call("plan", "./folder"), 2, "./folder: ", "it is a folder")
        self.assert_refused(self.call("plan", "none.json"), 2, "none.json: ", "No such file")
        self.assert_refused(self.call("doctor", "--mig-config", "folder#a"), 2, "it is a folder")

    def test_the_reports_of_a_folder_are_validated(self):
        self.write("one.json", "{")
        process = self.call("validate", ".")
        self.assert_refused(process, 5, "./one.json is not a valid report")
        data = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data")
        shutil.copy(os.path.join(data, "report-1.0.json"), self.path("one.json"))
        process = self.call("validate", ".")
        self.assertEqual(process.returncode, 0, process.err)
        self.assertIn("./one.json: valid", process.out)

    def test_cuda_without_a_gpu_is_exit_8(self):
        if os.path.exists("/dev/nvidiactl"):
            self.skipTest("there is a GPU")
        process = self.call("run", "--device", "cuda", "--quiet")
        self.assert_refused(process, 8, "cuda")
        if "has no cuda backend" not in process.err and not os.path.exists("/proc/driver/nvidia"):
            self.assertIn("no NVIDIA driver is loaded", process.err)
        self.assertEqual(os.listdir(self.folder), [])


if __name__ == "__main__":
    cli.main()
