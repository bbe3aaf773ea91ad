"""report: the forms that other tools read, judged by their parsers."""

import csv
import io
import json
import pathlib
import shutil
import subprocess
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

    def test_html(self):
        name = "runs.html"
        arguments = ["report", self.hostile, "--format", "html", "--output", name]
        process = self.call(*arguments, "--plot-data", "runs.gp")
        if shutil.which("gnuplot") is None:
            self.assert_refused(process, 8, "gnuplot-nox", "--no-charts")
            self.assertEqual(self.call(*arguments, "--no-charts").returncode, 0)
            return
        self.assertEqual(process.returncode, 0, process.err)
        text = pathlib.Path(self.path(name)).read_text(encoding="utf-8")
        self.assertIn("<svg", text)
        for word in ("<script", "<a href='x'", "src=", "@import"):
            self.assertNotIn(word, text)
        self.assertIn("$runs << EOD", pathlib.Path(self.path("runs.gp")).read_text("utf-8"))
        self.assert_renders(name)

    def assert_renders(self, name):
        """In a browser that reaches no network, where there is one."""
        browser = shutil.which("chromium")
        if browser is None:
            self.skipTest("no chromium: not rendered")
        process = subprocess.run(
            [browser, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom",
             "--user-data-dir=" + self.path("profile"), "--host-resolver-rules=MAP * ~NOTFOUND",
             "--enable-logging=stderr", "file://" + self.path(name)],
            capture_output=True, text=True, timeout=60, check=True)
        self.assertIn("<figcaption>", process.stdout)
        self.assertIn("</svg>", process.stdout)
        self.assertNotIn("CONSOLE", process.stderr)

    def test_a_file_is_not_overwritten(self):
        arguments = ["report", self.hostile, "--format", "csv", "--output", "runs.csv"]
        self.assertEqual(self.call(*arguments).returncode, 0)
        self.assert_refused(self.call(*arguments), 9, "--force")
        self.assertEqual(self.call(*arguments, "--force").returncode, 0)


if __name__ == "__main__":
    cli.main()
