"""Names that steer terminals or logs of CI come out of no command as they are, in no form."""

import copy
import json
import os
import pathlib
import re

import cli
import consumers

# Beginnings of names: of escape sequences, lines, directions of text, and commands to logs of CI.
HOSTILE = ["\x1b]0;owned\x07", "\x00", "\x7f", "\u009b31m", "\u202eevil", "\u2066a", "\u2028b", "\n",
           "::error::", " ::set-output name=a::", "\n::error file=a::", "\r##vso[task.complete]",
           "##[Error]", "x ##teamcity[a]", "\u00a0::warning::", "section_start:1:a\r\x1b[0K"]
STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
CI_COMMAND = re.compile(r"^\s*::[a-z].*::|##[a-z]*\[", re.IGNORECASE | re.MULTILINE)


def texts_of(value, place=()):
    """The places of all texts in a document."""
    if isinstance(value, str):
        yield place
    elif isinstance(value, (dict, list)):
        for key, part in value.items() if isinstance(value, dict) else enumerate(value):
            yield from texts_of(part, (*place, key))


def put_before(document, place, text):
    for key in place[:-1]:
        document = document[key]
    document[place[-1]] = text + document[place[-1]]


class HostileNames(cli.CliTest):
    def assert_harmless(self, *command, code=None, **options):
        process = self.call(*command, **options, text=False)
        if code is not None:
            self.assertEqual(process.returncode, code, process.err)
        for stream in (process.out, process.err):
            text = stream.decode("utf-8").replace("\r\n", "\n")  # as CSV ends its lines
            for steering in (STEERING, CI_COMMAND):
                found = steering.search(text)
                where = found and text[max(0, found.start() - 60):found.end() + 40]
                self.assertIsNone(found, f"{command}: {where!r}")
        return process.out.decode("utf-8") + process.err.decode("utf-8")

    def free_texts(self, report):
        """The places where any text is valid: each is tried in a report of its own."""
        places = list(texts_of(report))
        os.mkdir(self.path("tried"))
        for number, place in enumerate(places):
            changed = copy.deepcopy(report)
            put_before(changed, place, HOSTILE[number % len(HOSTILE)])
            self.write(f"tried/{number:04}.json", json.dumps(changed))
        valid = re.findall(r"^tried/(\d+).json: valid", self.assert_harmless("validate", "tried"),
                           re.MULTILINE)
        self.assertGreater(len(valid), 10)
        return [places[int(number)] for number in valid]

    def hostile(self, source, first):
        """A report with all of them hostile."""
        report = copy.deepcopy(source)
        report["arms"][0]["runs"][0]["warnings"] = [{"code": "made_up", "text": "a text"}]
        for number, place in enumerate(self.free_texts(report), first):
            put_before(report, place, HOSTILE[number % len(HOSTILE)])
        for other in HOSTILE:
            report["arms"].append({**copy.deepcopy(report["arms"][0]), "name": other + "arm"})
        return report

    def test_no_form_of_a_report_or_comparison_steers(self):
        made = self.tiny("--steps", "3", "--output", "r.json")
        self.assertEqual(made.returncode, 0, made.err)
        report = self.hostile(self.report("r.json"), 0)
        self.write("a.json", json.dumps(report))
        for arm in report["arms"]:
            for run in arm["runs"]:
                run["started_at"] = "2026-01-01T12:00:00Z"
        self.write("b.json", json.dumps(report))
        refusal = self.call("report", "a.json", "--format", "none").err
        names = refusal[refusal.index("(") + 1:refusal.rindex(")")].split(", ")
        self.assertGreaterEqual(len(names), 11, names)
        for name in names:
            with self.subTest(form=name):
                text = self.assert_harmless("report", "a.json", "--format", name, "--no-charts")
                if name in consumers.JUDGES:
                    consumers.JUDGES[name](self, text)
        self.assert_harmless("report", "a.json", "--format", "text", env={
            **cli.clean_environment(), "COLUMNS": "40"})
        self.assert_harmless("report", "\x1b[1m=a.json", "::error::=b.json", "--format", "text")
        for form in ([], ["--json"], ["--markdown"], ["--html", "c.html", "--no-charts"]):
            with self.subTest(compare=form):
                self.assert_harmless("compare", "a.json", "b.json", *form)
        self.assert_harmless("gate", "a.json", "b.json", "--junit", "g.xml")
        for file in ("c.html", "g.xml"):
            text = pathlib.Path(self.path(file)).read_text(encoding="utf-8")
            self.assertIsNone(STEERING.search(text), file)
            self.assertIsNone(CI_COMMAND.search(text), file)
        consumers.assert_junit(self, text)
        self.assert_harmless("baseline", "add", "main", "a.json", code=0)
        for command in (["list"], ["list", "--json"], ["show", "main"], ["show", "main", "--json"]):
            self.assert_harmless("baseline", *command, code=0)
        self.assert_harmless("rerun", "a.json", code=2)
        self.assertEqual(json.loads(self.assert_harmless("compare", "a.json", "b.json", "--json"))
                         ["schema"], "nearmetal/comparison")

    def test_no_error_that_quotes_a_name_steers(self):
        for name in HOSTILE:
            name = name.replace("\x00", "") + "x"
            with self.subTest(name=name):
                self.assert_harmless("validate", name + ".json", code=5)
                for command in ("plan", "sweep", "doctor"):
                    self.assert_harmless(command, name + ".json", code=2)
                self.assert_harmless("gate", name, name, code=5)
                self.assert_harmless("plan", "--hosts", name + "/a:1", "1x1x1", code=2)
                self.assert_harmless(name, code=2)
        for name in HOSTILE:
            layout = {"layouts": [{"name": "a" + name, "shape": "1x1x1"}, {name: 1}]}
            file = self.write("layout.json", json.dumps(layout))
            self.assert_harmless("plan", file, "--hosts", "a:1", code=2)
            layout["layouts"].pop()
            self.write("layout.json", json.dumps(layout))
            for form in ("text", "json"):
                self.assert_harmless("plan", file, "--hosts", "a:1", "--format", form)


if __name__ == "__main__":
    cli.main()
