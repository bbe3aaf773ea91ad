"""What tests of published logs share."""

import json
import pathlib

import jsonschema

import cli

ROOT = pathlib.Path(__file__).parents[2]
PUBLISHED = ROOT / "tests" / "data" / "published"
REPORT = ROOT / "tests" / "data" / "report-1.2.json"
PAGE = (ROOT / "docs" / "imported.md").read_text(encoding="utf-8")

# What stands before lines, as those that write it do: mpirun of Open MPI 4.1.4 was run, with --tag-output and
# --timestamp-output; that of 5 is written by src/common/pmix_iof.c of OpenPMIx.
PREFIXES = {"plain": "", "times": "2026-01-31T12:00:00.123456789Z ", "mpirun": "[1,0]<stdout>:",
            "srun": "0: ", "srun of 11 ranks": " 0: ", "both": "[2026-01-31 12:00:00,123] 0: ",
            "times of mpirun": "Sun Nov 29 11:09:24 2026<stdout>:",
            "mpirun with times": "Sun Nov  9 11:09:24 2026[1,0]<stdout>:",
            "Open MPI 5": "[prterun-node1-4242@1,0]<stdout>: ",
            "Open MPI 5 with times": "[Sun Nov 29 11:09:24 2026][1,0]<stdout>: ",
            "horovodrun": "[0]<stdout>:", "Intel MPI": "[0] ",
            "kubectl": "[pod/train-launcher-x7k2p/train] 2026-11-27T16:00:00.123456789Z ",
            "offset": "2026-11-27T17:00:00+01:00 ",
            "Kubeflow": "INFO|2024-12-07T13:55:32|/opt/launcher.py|27| ",
            "another": "worker-0.train (3/8) > ", "indented": "    "}


class ImportTest(cli.CliTest):
    def text_of(self, name):
        return (PUBLISHED / name).read_text(encoding="utf-8")

    def imported(self, kind, file, *options):
        process = self.call("import", kind, str(file), *options)
        self.assertEqual(process.returncode, 0, process.err)
        report = json.loads(process.out, parse_constant=self.fail)
        schema = json.loads((ROOT / "reports/schema/report.schema.json").read_text("utf-8"))
        jsonschema.Draft202012Validator(schema).validate(report)
        return report

    def changed(self, name, change):
        text = change(self.text_of(name))
        self.assertNotEqual(text, self.text_of(name))
        return self.write("changed.log", text)

    def assert_stops(self, kind, name, change, line, *words):
        process = self.call("import", kind, self.changed(name, change))
        self.assertEqual(process.returncode, 5, process.out + process.err)
        self.assertEqual(len(process.err.splitlines()), 1, process.err)
        self.assertIn(f"changed.log:{line}: ", process.err)
        for word in words:
            self.assertIn(word, process.err)

    def assert_log_stops(self, kind, text, line, *words):
        process = self.call("import", kind, self.write("changed.log", text))
        self.assertEqual(process.returncode, 5, process.out + process.err)
        for word in (f"changed.log:{line}: ", *words):
            self.assertIn(word, process.err)

    def sides(self, name):
        files = []
        for side in ("bare-metal", "vm"):
            files.append(self.path(f"{side}.json"))
            process = self.call("import", "pairs", str(PUBLISHED / name), "--side", side,
                                "--output", files[-1])
            self.assertEqual(process.returncode, 0, process.err)
        return files
