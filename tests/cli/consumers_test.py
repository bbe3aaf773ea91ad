"""The forms for other tools, of all kinds of runs and gates, judged by those tools; and that these can refuse."""

import copy
import json
import os
import shutil
import unittest

import yaml

import comparing
import consumers
import cli
import made_up
from hostile_names_test import HOSTILE

RELEASED = comparing.SOURCE.parent / "report-1.2.json"


class Consumers(comparing.CompareTest):
    """Runs of released reports, and changed ones."""

    def changed(self, name, minute, ends=("complete", "partial", "failed")):
        """With arms of every kind of name, and a run of each that ended so."""
        def change(report, run):
            [arm] = report["arms"]
            arm["runs"] = [self.ended(run, *how) for how in enumerate(ends)]
            names = [*HOSTILE, "", " ", "-", "0", '"\\', "]]>&lt;", "{a=\"b\"}", "%s", "\U0001f600", "a" * 3000]
            report["arms"] = [arm, *({**copy.deepcopy(arm), "name": f"{each}arm"} for each in names)]
            report.update(status="failed", exit_code=10)
        return self.made(name, 1000, minute, change)

    def ended(self, run, second, status):
        reason = "a <reason>\n ]]> \"of\" \x1b[31m\u2028 & more" if status == "failed" else None
        started = run["started_at"].replace("00Z", f"{second:02}Z")
        return {**copy.deepcopy(run), "status": status, "failure": reason, "started_at": started}

    def reports(self, form):
        """(name, text) of what `report` writes for runs of each kind."""
        self.write("a.json", json.dumps(made_up.sweep(0, False, 1)))
        self.write("b.json", json.dumps(made_up.sweep(60, True, 0.9)))
        self.changed("changed.json", 0)
        self.changed("failed.json", 0, ["failed"])
        self.assertEqual(self.call("validate", "changed.json", "failed.json").returncode, 0)
        strange = os.path.join(os.fsencode(self.folder), b"r\xff <a>.json")
        shutil.copy(comparing.SOURCE, strange)
        for places in (["a.json"], ["metal=a.json", "vm=b.json"], [str(RELEASED)], [strange], ["changed.json"],
                       ["failed.json"]):
            process = self.call("report", *places, "--format", form)
            self.assertEqual(process.returncode, 0, process.err)
            yield str(places), process.out

    def assert_taken(self, form):
        for name, text in self.reports(form):
            with self.subTest(runs=name):
                consumers.JUDGES[form](self, text)


@unittest.skipIf(consumers.NO_SCHEMAS, consumers.NO_SCHEMAS)
class Junit(Consumers):
    def test_reports(self):
        self.assert_taken("junit")

    def test_gates(self):
        base, slow = self.runs("base", 1000), self.runs("slow", 950, minute=60)
        few = self.changed("few.json", 90), self.changed("more.json", 120)
        self.write("a.json", json.dumps(made_up.sweep(0, False, 1)))
        self.write("b.json", json.dumps(made_up.sweep(60, True, 0.9)))
        os.mkdir(self.path("base"))
        for path in base:
            shutil.move(path, self.path("base"))
        for arguments, words in ((["base", *slow], 'failures="1"'),
                                 (["base", *self.runs("same", 1000, minute=60)], 'failures="0" errors="0"'),
                                 (["base", slow[0]], 'errors="1"'),
                                 (["base", *few], 'errors="27"'),
                                 (["a.json", "b.json", "--metric", "all"], 'tests="24" failures="10"'),
                                 ([few[0], few[1], "--fail-on", "any"], 'errors="27"')):
            with self.subTest(words=words):
                process = self.call("gate", *arguments, "--junit", "gate.xml", "--force")
                self.assertIn(process.returncode, (0, 1, 3, 4), process.err)
                with open(self.path("gate.xml"), encoding="utf-8") as file:
                    text = file.read()
                self.assertIn(words, text)
                consumers.assert_junit(self, text)

    def test_what_is_broken_is_refused(self):
        text = self.call("report", str(comparing.SOURCE), "--format", "junit").out
        case = "    <properties/>\n  </testcase>"
        for old, new, refusing in (("</testcase>", case, consumers.SCHEMAS),
                                   (' failures="0"', "", consumers.SCHEMAS),
                                   ("<testcase", "<test", consumers.SCHEMAS),
                                   ("</testsuite>", "", consumers.SCHEMAS),
                                   (' hostname="', ' host="', consumers.SCHEMAS),
                                   ('" hostname', 'Z" hostname', ["JUnit.xsd"]),
                                   (' time="', ' time="about ', consumers.SCHEMAS),
                                   ("  <system-err/>\n", "", ["JUnit.xsd"])):
            broken = text.replace(old, new)
            self.assertNotEqual(broken, text, old)
            for schema in consumers.SCHEMAS:
                with self.subTest(old=old, new=new, schema=schema):
                    self.assertEqual(consumers.refusal_of_schema(schema, broken) != "", schema in refusing)


@unittest.skipIf(consumers.NO_PROMTOOL, consumers.NO_PROMTOOL)
class Prometheus(Consumers):
    def test_reports(self):
        self.assert_taken("prometheus")

    def test_what_is_broken_is_refused(self):
        text = self.call("report", str(comparing.SOURCE), "--format", "prometheus").out
        for old, new in (('"}', "}"), (" gauge", " counter"), ("arm=", "a-rm="),
                         ("_seconds", "_milliseconds"), ("} ", "} x"), ("# HELP", "# HELD")):
            with self.subTest(old=old, new=new):
                self.assertIn(old, text)
                self.assertNotEqual(consumers.refusal_of_promtool(text.replace(old, new)), "")


class Benchstat(Consumers):
    def test_reports(self):
        self.assert_taken("go")

    def test_what_is_broken_is_refused(self):
        text = self.call("report", str(comparing.SOURCE), "--format", "go").out
        for old, new in (("arm=", "arm= "), (" ns/op", ""), ("batch:", "Batch:"), ("batch: ", "batch:"),
                         ("better=higher", "better"), ("better=higher", "better=higher better=lower")):
            with self.subTest(old=old, new=new):
                self.assertIn(old, text)
                with self.assertRaises(ValueError):
                    consumers.benchmarks(text.replace(old, new))


@unittest.skipIf(consumers.NO_KUBERNETES, consumers.NO_KUBERNETES)
class Kubernetes(cli.CliTest):
    """The manifests themselves are judged in mpi_job_test."""

    def test_what_is_broken_is_refused(self):
        manifest = yaml.safe_load(self.call("plan", "2x1x1", "--hosts", "2*1", "--format", "mpijob", "--image",
                                            "one").out)
        self.assertEqual(consumers.refusals_of_pods(manifest), [])
        for broken in ({"container": []}, {"containers": [{"name": "a", "image": 1}]}, {"containers": [{}]},
                       {"containers": [{"name": "a", "resources": {"limits": {"memory": 1.5}}}]},
                       {"containers": [{"name": "a", "volumeMounts": [{"name": "b"}]}]}):
            with self.subTest(broken=broken):
                changed = copy.deepcopy(manifest)
                changed["spec"]["mpiReplicaSpecs"]["Worker"]["template"]["spec"].update(broken)
                self.assertNotEqual(consumers.refusals_of_pods(changed), [])


if __name__ == "__main__":
    cli.main()
