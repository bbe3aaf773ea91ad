"""What the tests of `nearmetal plan` have in common."""

import json
import pathlib

import jsonschema

import cli

ROOT = pathlib.Path(__file__).resolve().parents[2]


class Plan(cli.CliTest):
    def plan(self, *arguments):
        process = self.call("plan", *arguments)
        self.assertEqual((process.returncode, process.err), (0, ""), arguments)
        return process.out.replace(cli.EXECUTABLE, "/opt/nearmetal")

    def jobs(self, *arguments):
        """All jobs of all layouts, without what depends on who plans, as a script starts them."""
        plan = json.loads(self.plan(*arguments, "--format", "json"))
        jobs = []
        for layout in plan["layouts"]:
            for number, job in enumerate(layout["jobs"], 1):
                several = f", job {number}" if len(layout["jobs"]) > 1 else ""
                words = []
                for word in job["command"]:
                    if word == "--conducted":
                        words += ["--json", "--arm=" + layout["name"] + several]
                    elif word != "--allow-run-as-root":
                        words.append(word)
                jobs.append({**job, "command": words})
        return jobs

    def schema(self, name):
        schema = json.loads(self.call("schema", name).out)
        jsonschema.Draft202012Validator.check_schema(schema)
        return jsonschema.Draft202012Validator(schema)
