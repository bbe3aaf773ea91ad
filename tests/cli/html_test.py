"""HTML of report, compare and gate in a headless Chromium: drawn, silent, alone."""

import copy
import html
import json
import pathlib
import re
import shutil
import subprocess
import sys
import unittest

import cli
import made_up

BROWSER = shutil.which("chromium")
SLOW = "--slow" in sys.argv
if SLOW:
    sys.argv.remove("--slow")


# Notes, for each chart, the pairs of its texts of which one is over the other by more than a pixel,
# and the texts that reach out of it; what is wider than the page; and whether text and ground differ.
LOOK_FOR_OVERLAPS = """<script>
const found = [];
document.querySelectorAll("svg").forEach((svg, number) => {
  const texts = [...svg.querySelectorAll("text")].filter((one) => one.textContent.trim());
  const boxes = texts.map((one) => one.getBoundingClientRect());
  const whole = svg.getBoundingClientRect();
  boxes.forEach((box, i) => {
    if (box.left < whole.left - 1 || box.right > whole.right + 1 || box.top < whole.top - 1 ||
        box.bottom > whole.bottom + 1) {
      found.push([number, texts[i].textContent.trim(), "out of the chart"]);
    }
  });
  boxes.forEach((a, i) => boxes.slice(i + 1).forEach((b, k) => {
    if (Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1 &&
        Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 1) {
      found.push([number, texts[i].textContent.trim(), texts[i + 1 + k].textContent.trim()]);
    }
  }));
});
if (document.documentElement.scrollWidth > window.innerWidth) found.push("wider than the page");
const style = getComputedStyle(document.body);
window.top.document.body.textContent = JSON.stringify({
  found, width: window.innerWidth, ink: style.color, ground: style.backgroundColor,
  answer: document.querySelector(".answer")?.textContent});
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
class Pages(cli.CliTest):
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

    def looked_at(self, page, width=800, flags=()):
        """What a page shows in a frame, which is narrower than a window of the browser can be."""
        page = re.sub("<meta http-equiv=.Content-Security-Policy[^>]*>", "", page)
        page = html.escape(page + LOOK_FOR_OVERLAPS)
        self.write("looked_at.html", f"<!DOCTYPE html><meta name=color-scheme content='light dark'>"
                   f"<iframe width={width} height=2000 style='border: 0' srcdoc=\"{page}\"></iframe>")
        document, _, _ = self.opened("looked_at.html", "--window-size=1300,2000", *flags)
        return json.loads(html.unescape(re.search("<body[^>]*>(.*)</body>", document, re.S)[1]))

    def page(self, *arguments):
        process = self.call(*arguments)
        self.assertIn(process.returncode, (0, 1), process.err)
        return pathlib.Path(self.path(arguments[-1])).read_text(encoding="utf-8")


class Html(Pages):
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
        self.assert_shown("bare.html", 7)

    def test_compare_and_gate(self):
        process = self.call("compare", "--bare", self.bare, "--vm", self.vm, "--html", "vm.html")
        self.assertEqual(process.returncode, 0, process.err)
        self.assertIn("a VM against bare metal", self.assert_shown("vm.html", 8))
        process = self.call("gate", self.bare, self.vm, "--html", "gate.html")
        self.assertEqual(process.returncode, 1, process.err)
        self.assertIn("verdict: fail: worse by more than 2 %", self.assert_shown("gate.html", 8))

    def test_texts_of_charts_do_not_overlap(self):
        page = self.page("report", self.bare, "--format", "html", "--output", "bare.html")
        self.assertEqual(self.looked_at(page)["found"], [])

    def test_texts_that_overlap_or_do_not_fit_are_seen(self):
        page = ("<svg width=200 height=50><text x=10 y=20>first</text><text x=15 y=22>second</text>"
                "<text x=100 y=20>third</text><text x=190 y=40>fourth</text></svg>"
                "<div style='width: 3000px'>wide</div>")
        self.assertEqual(self.looked_at(page)["found"],
                         [[0, "fourth", "out of the chart"], [0, "first", "second"],
                          "wider than the page"])

    def test_a_page_that_is_neither_silent_nor_alone_is_seen(self):
        self.write("bad.html", "<img src='http://example.invalid/x.png'><script>boom()</script>")
        _, talk, requests = self.opened("bad.html")
        self.assertIn("CONSOLE", talk)
        self.assertEqual(requests, {"http://example.invalid/x.png"})


def arms_of_two_batches():
    """Arms of 1, 2 and 4 ranks at two batches, with names too long for a line."""
    report = made_up.sweep(0, False, 1)
    arms = []
    for batch in (64, 256):
        for arm in copy.deepcopy(report["arms"]):
            arm["grid"] = {"layout": arm["name"], "settings": {"batch": str(batch)}}
            arm["name"] += f" of a machine with a long name, batch {batch}"
            for one in arm["runs"]:
                one["throughput_images_per_second"] *= 137 if batch == 64 else 151
                made_up.settle(one, made_up.BATCH)
            arms.append(arm)
    return {**report, "arms": arms}


@unittest.skipUnless(SLOW, "when asked for: ctest -C slow -R html_slow")
class AllWidths(Pages):
    """Pages at 400, 800 and 1,280 pixels, light and dark, as a reader sees them."""

    def pages(self):
        many = self.write("many.json", json.dumps(arms_of_two_batches()))
        published = pathlib.Path(__file__).parent.parent / "data" / "published"
        for side in ("bare-metal", "vm"):  # of the pairs that MLPerf published
            process = self.call("import", "pairs", str(published / "mlperf_pairs.json"), "--side",
                                side, "--output", f"published-{side}.json")
            self.assertEqual(process.returncode, 0, process.err)
        yield self.page("report", self.bare, "--format", "html", "--output", "1.html")
        yield self.page("report", many, "--format", "html", "--output", "2.html")
        yield self.page("compare", "--bare", self.bare, "--vm", self.vm, "--html", "3.html")
        yield self.page("gate", self.bare, self.vm, "--html", "4.html")
        yield self.page("compare", "--bare", "published-bare-metal.json", "--vm",
                        "published-vm.json", "--html",
                        "5.html")

    def test_nothing_overflows_or_overlaps(self):
        for number, page in enumerate(self.pages()):
            for width in (400, 800, 1280):
                for dark in (False, True):
                    with self.subTest(page=number, width=width, dark=dark):
                        flags = ["--blink-settings=preferredColorScheme=0"] if dark else []
                        seen = self.looked_at(page, width, flags)
                        self.assertEqual((seen["found"], seen["width"]), ([], width))
                        self.assertIn(seen["answer"], html.unescape(page))
                        ink, ground = (sum(map(int, re.findall(r"[0-9]+", seen[name])[:3]))
                                       for name in ("ink", "ground"))
                        self.assertGreater(ink - ground if dark else ground - ink, 400)


if __name__ == "__main__":
    cli.main()
