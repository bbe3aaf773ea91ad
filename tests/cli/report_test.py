"""report: the forms that other tools read, judged by their parsers."""

import csv
import io
import json
import pathlib
import xml.etree.ElementTree as ElementTree

import cli

SOURCE = pathlib.Path(__file__).parent.parent / "data" / "report-1.0.json"


class Report(cli.CliTest):
    def setUp(self):
        super().setUp()
        report = json.loads(SOURCE.read_text(encoding="utf-8"))
        report["arms"][0]["name"] = "<a href='x'>\"&,\n\u0001"
        self.hostile = self.write("hostile.json", json.dumps(report))

    def test_csv(self):
        process = self.call("report", self.hostile, "--format", "csv")
        self.assertEqual(process.returncode, 0, process.err)
        rows = list(csv.DictReader(io.StringIO(process.out)))
        self.assertEqual(len(rows), 5)
        self.assertEqual(rows[0]["metric"], "throughput_images_per_second")
        self.assertEqual(float(rows[0]["value"]), 50.11471854186516)

    def test_junit(self):
        process = self.call("report", self.hostile, "--format", "junit")
        suite = ElementTree.fromstring(process.out)
        self.assertEqual(suite.get("tests"), "1")
        self.assertEqual(suite.find("testcase").get("classname")[:22], "nearmetal.<a href='x'>")

    def test_markdown_and_github(self):
        for form in ("markdown", "github"):
            process = self.call("report", self.hostile, "--format", form)
            self.assertIn("| 50.11 |", process.out)
            self.assertNotIn("<a", process.out)

    def test_a_file_is_not_overwritten(self):
        arguments = ["report", self.hostile, "--format", "csv", "--output", "runs.csv"]
        self.assertEqual(self.call(*arguments).returncode, 0)
        self.assert_refused(self.call(*arguments), 9, "--force")
        self.assertEqual(self.call(*arguments, "--force").returncode, 0)


if __name__ == "__main__":
    cli.main()
