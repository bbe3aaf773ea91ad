"""What the tests of compare and gate share: reports made from one of a released version."""

import copy
import json
import pathlib
import random

import jsonschema

import cli
import made_up

SOURCE = pathlib.Path(__file__).parent.parent / "data" / "report-1.0.json"


class CompareTest(cli.CliTest):
    def setUp(self):
        super().setUp()
        self.random = random.Random(7)
        self.source = json.loads(SOURCE.read_text(encoding="utf-8"))

    def made(self, name, throughput, minute, change=None):
        report = copy.deepcopy(self.source)
        run = report["arms"][0]["runs"][0]
        run["warnings"] = []
        run["throughput_images_per_second"] = throughput
        run["started_at"] = f"2026-11-21T{minute // 60:02}:{minute % 60:02}:00Z"
        if change:
            change(report, run)
        return self.write(name, json.dumps(made_up.settled(report)))

    def runs(self, name, level, count=6, minute=0, change=None):
        return [self.made(f"{name}-{i}.json", level * (1 + self.random.gauss(0, 0.004)),
                          minute + i, change) for i in range(count)]

    def assert_verdict(self, process, code, *fragments):
        self.assertEqual(process.returncode, code, process.out + process.err)
        last = process.out.splitlines()[-1]
        self.assertTrue(last.startswith("verdict: "), last)
        self.assertTrue(last.endswith(f"(exit {code})"), last)
        for fragment in fragments:
            self.assertIn(fragment, process.out)

    def json_of(self, *arguments):
        process = self.call(*arguments, "--json")
        document = json.loads(process.out, parse_constant=self.fail)
        schema = json.loads(self.call("schema", "comparison").out)
        jsonschema.Draft202012Validator.check_schema(schema)
        jsonschema.Draft202012Validator(schema).validate(document)
        self.assertEqual(document["exit_code"], process.returncode)
        return document
