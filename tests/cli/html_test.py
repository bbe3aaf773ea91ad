"""HTML of report, compare and gate in a headless Chromium: drawn, silent, alone."""

import html
import json
import pathlib
import re
import shutil
import subprocess
import unittest

import cli
import made_up

BROWSER = shutil.which("chromium")


# Notes, for each chart, the pairs of its texts of which one is over the other by more than a pixel.
LOOK_FOR_OVERLAPS = """<script>
const found = [];
document.querySelectorAll("svg").forEach((svg, number) => {
  const texts = [...svg.querySelectorAll("text")].filter((one) => one.textContent.trim());
  const boxes = texts.map((one) => one.getBoundingClientRect());
  boxes.forEach((a, i) => boxes.slice(i + 1).forEach((b, k) => {
    if (Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1 &&
        Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 1) {
      found.push([number, texts[i].textContent.trim(), texts[i + 1 + k].textContent.trim()]);
    }
  }));
});
document.body.textContent = JSON.stringify(found);
</script>"""


def requests_of(net_log):
    """What the page asked for by its log of the network; the browser asks for things of its own."""
    found = set()
    for event in json.loads(net_log.read_text(encoding="utf-8"))["events"]:
        request = event.get("params", {})
        if request.get("initiator", "not an origin") != "not an origin":
            found.add(request["url"])
    return {url for url in found if not url.startswith(("file:", "data:", "chrome"))}


@unittest.skipIf(BROWSER is None, "no chromium: apt-get install chromium")
@unittest.skipIf(shutil.which("gnuplot") is None, "no gnuplot: apt-get install gnuplot-nox")
class Html(cli.CliTest):
    def setUp(self):
        super().setUp()
        self.bare = self.write("bare.json", json.dumps(made_up.sweep(0, False, 1)))
        self.vm = self.write("vm.json", json.dumps(made_up.sweep(60, True, 0.95)))

    def opened(self, name, *flags):
        """The document after it was shown, what the browser said, what it asked the network for."""
        log = pathlib.Path(self.path("net.json"))
        process = subprocess.run(
            [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run",
             "--disable-background-networking", "--disable-component-update", "--disable-sync",
             "--user-data-dir=" + self.path("profile"), "--host-resolver-rules=MAP * ~NOTFOUND",
             "--enable-logging=stderr", f"--log-net-log={log}", *flags, "--dump-dom",
             "file://" + self.path(name)],
            capture_output=True, text=True, timeout=cli.limit(100), check=True)
        return process.stdout, process.stderr, requests_of(log)

    def assert_shown(self, name, charts):
        document, talk, requests = self.opened(name)
        self.assertEqual(document.count("</svg>"), charts)
        self.assertEqual(document.count("<figcaption>"), charts)
        self.assertNotIn("CONSOLE", talk)
        self.assertEqual(requests, set())
        return document

    def test_report(self):
        process = self.call("report", self.bare, "--format", "html", "--output", "bare.html")
        self.assertEqual(process.returncode, 0, process.err)
        identifiers = re.findall(r"\bid=[\"']([^\"']+)", self.assert_shown("bare.html", 7))
        self.assertEqual(len(identifiers), len(set(identifiers)))

    def test_compare_and_gate(self):
        process = self.call("compare", "--bare", self.bare, "--vm", self.vm, "--html", "vm.html")
        self.assertEqual(process.returncode, 0, process.err)
        self.assertIn("a VM against bare metal", self.assert_shown("vm.html", 8))
        process = self.call("gate", self.bare, self.vm, "--html", "gate.html")
        self.assertEqual(process.returncode, 1, process.err)
        self.assertIn("verdict: fail: worse by more than 2 %", self.assert_shown("gate.html", 8))

    def overlaps(self, page):
        page = re.sub("<meta http-equiv=.Content-Security-Policy[^>]*>", "", page)
        self.write("looked_at.html", page + LOOK_FOR_OVERLAPS)
        document, _, _ = self.opened("looked_at.html")
        return json.loads(html.unescape(re.search("<body[^>]*>(.*)</body>", document, re.S)[1]))

    def test_texts_of_charts_do_not_overlap(self):
        process = self.call("report", self.bare, "--format", "html", "--output", "bare.html")
        self.assertEqual(process.returncode, 0, process.err)
        page = pathlib.Path(self.path("bare.html")).read_text(encoding="utf-8")
        self.assertEqual(self.overlaps(page), [])

    def test_texts_that_overlap_are_seen(self):
        page = ("<svg width=200 height=50><text x=10 y=20>first</text><text x=15 y=22>second</text>"
                "<text x=100 y=20>third</text></svg>")
        self.assertEqual(self.overlaps(page), [[0, "first", "second"]])

    def test_a_page_that_is_neither_silent_nor_alone_is_seen(self):
        self.write("bad.html", "<img src='http://example.invalid/x.png'><script>boom()</script>")
        _, talk, requests = self.opened("bad.html")
        self.assertIn("CONSOLE", talk)
        self.assertEqual(requests, {"http://example.invalid/x.png"})


if __name__ == "__main__":
    cli.main()
