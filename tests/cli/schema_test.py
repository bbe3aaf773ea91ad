"""The program's reader and the shipped schema agree, on good reports and on thousands of bad ones."""

import json
import pathlib
import resource
import subprocess

import jsonschema

import cli
from place_judge import PlaceJudge

# The values that replace a value: every type, edges of ranges, texts that look like numbers.
REPLACEMENTS = [None, True, -1, 0, 0.5, 256, 2**53, 1e308, "", "NaN", "2.0", "complete", "a" * 64,
                "A" * 64, "2026-13-01T00:00:00Z", "2026-04-31T00:00:00Z", [], [1], {}, {"a": 1}]

SAMPLE = (pathlib.Path(__file__).parent.parent / "data" / "report-1.2.json").read_text("utf-8")

# Reports are documents: what is no JSON is judged without the schema.
NO_JSON = ["", " ", "{", "[", "nul", "NaN", '{"schema": NaN}', '{"exit_code": Infinity}', "[1e999]",
           "{'a': 1}", '{"a": 1,}', "{} {}", "\x00", "[" * 100000, SAMPLE + "\x00x"]


def mutants(report):
    """The report with one change at a time, in place: the path of what changed, what the change is, and the
    text of the report."""
    for path in list(cli.places(report, 1))[1:]:
        parent = report
        for key in path[:-1]:
            parent = parent[key]
        key, value = path[-1], parent[path[-1]]
        parent[key] = "a place"
        before, after = json.dumps(report).split('"a place"')
        for replacement in REPLACEMENTS:
            parent[key] = replacement
            yield path, f"{path} = {replacement!r}", before + json.dumps(replacement) + after
        parent[key] = value
        if not isinstance(parent, dict):
            continue
        del parent[key]
        yield path[:-1], f"{path} removed", json.dumps(report)
        parent[key + "_x"] = value
        yield path[:-1], f"{path} renamed", json.dumps(report)
        del parent[key + "_x"]
        parent[key] = value
        parent["not_in_the_schema"] = 1
        yield path[:-1], f"{path} has a new neighbour", json.dumps(report)
        del parent["not_in_the_schema"]


class Schema(cli.CliTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.schema = json.loads(subprocess.check_output([cli.EXECUTABLE, "schema"]))
        jsonschema.Draft202012Validator.check_schema(cls.schema)
        cls.judge = jsonschema.Draft202012Validator(cls.schema)

    def reader_accepts(self, texts):
        """The program's verdict on each text, from one process for all.

        What is as the schema says and contradicts itself is accepted here: no schema can tell.
        """
        paths = [self.write(f"{index}.json", text) for index, text in enumerate(texts)]
        with open(self.path("out"), "w+", encoding="utf-8") as out, \
                open(self.path("err"), "w+", encoding="utf-8") as err:
            process = self.call("validate", *paths, stdout=out, stderr=err)
            out.seek(0)
            err.seek(0)
            accepted = {line.split(":")[0] for line in out}
            errors = err.readlines()
        self.assertEqual(process.returncode, 0 if len(accepted) == len(texts) else 5)
        self.assertEqual(len(errors), len(texts) - len(accepted))
        accepted |= {line.split()[1] for line in errors if "it contradicts itself: /" in line}
        return [path in accepted for path in paths]

    def assert_agreement(self, report):
        judge = PlaceJudge(self.schema, report, cli.places(report, 1))
        names, texts, judged = zip(*[(name, text, judge.is_valid(changed))
                                     for changed, name, text in mutants(report)])
        # Judged as a whole, some are what they are by their place: of each kind of change as many.
        for index in range(0, len(names), 101):
            self.assertEqual(self.judge.is_valid(json.loads(texts[index])), judged[index], names[index])
        accepted = [verdict for start in range(0, len(texts), 500)  # over the same few files
                    for verdict in self.reader_accepts(texts[start:start + 500])]
        for name, verdict, valid in zip(names, accepted, judged):
            self.assertEqual(verdict, valid, name)
        # Both verdicts must be frequent, or the comparison would prove nothing.
        self.assertGreater(len(names), 2000)
        self.assertGreater(sum(judged), len(names) // 20)
        self.assertGreater(len(names) - sum(judged), len(names) // 3)

    def made(self, *arguments, code=0):
        process = self.tiny("--steps", "3", "--json", *arguments)
        self.assertEqual(process.returncode, code, process.err)
        report = json.loads(process.out, parse_constant=lambda word: self.fail(word))
        self.judge.validate(report)
        self.write("made.json", process.out)
        self.assertEqual(self.call("validate", "made.json").returncode, 0)
        return report

    def test_a_full_report_and_its_mutants(self):
        report = self.made("--verify", "--profile", "--attribute", "--batch", "8")
        run = report["arms"][0]["runs"][0]
        del run["ranks"][0]["probes"]["probes"][1:]
        del run["profile"]["entries"][1:]  # one says as much as a hundred, and faster
        run["plans"] = [{"key": "k", "implementation": "i", "seconds": 1, "relative_error": 0}]
        run["warnings"] = [{"code": "some_code", "text": "t"}]
        run["jobs"] = [{"ranks": 1, "throughput_images_per_second": 1, "start_seconds": 0,
                        "first_step": run["window"]["first_step"],
                        "steps": run["window"]["steps"]}]
        report["environments"][0]["gpus"] = [{
            "name": "n", "uuid": "u", "pci_id": None, "memory_bytes": 1, "multiprocessors": 132,
            "compute_capability": None, "driver_version": "580",
            "unknown": {"pci_id": "r", "compute_capability": "r"}}]
        self.judge.validate(report)
        self.assert_agreement(report)

    def test_a_report_of_a_failed_run(self):
        report = self.made("--model", "resnet18", "--learning-rate", "1000000", code=6)
        self.assertEqual(report["status"], "failed")

    def test_what_is_no_json_is_refused(self):
        self.assertEqual(self.reader_accepts(NO_JSON), [False] * len(NO_JSON))

    def test_a_report_without_an_arm_is_refused(self):
        report = json.loads(SAMPLE)
        report["arms"] = []
        self.assertFalse(self.judge.is_valid(report))
        process = self.call("validate", self.write("empty.json", json.dumps(report)))
        self.assert_refused(process, 5, "/arms must hold at least one arm")

    def test_what_is_wrong_early_takes_no_room_for_all(self):
        report = json.loads(SAMPLE)
        report["arms"][0]["runs"][0]["ranks"] = [0] * 2_000_000
        path = self.write("many.json", json.dumps(report))
        limit = (1 << 30, 1 << 30)
        process = self.call("validate", path,
                            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, limit))
        self.assert_refused(process, 5, "/arms/0/runs/0/ranks/0 must be an object")

    def test_reports_of_released_versions_stay_readable(self):
        for path in (pathlib.Path(__file__).parent.parent / "data").glob("report-*.json"):
            with self.subTest(path=path.name):
                self.judge.validate(json.loads(path.read_text(encoding="utf-8")))
                self.assertEqual(self.call("validate", str(path)).returncode, 0)


class Copies(cli.CliTest):
    def test_the_copies_in_the_tree_are_what_the_program_prints(self):
        folder = pathlib.Path(__file__).parents[2] / "reports" / "schema"
        for path in sorted(folder.glob("*.schema.json")):
            with self.subTest(path=path.name):
                text = self.call("schema", path.name.split(".")[0]).out
                jsonschema.Draft202012Validator.check_schema(json.loads(text))
                self.assertEqual(path.read_text(encoding="utf-8"), text,
                                 "write it anew: cmake --build build --target schemas")
        self.assertEqual(len(list(folder.iterdir())), 6)


if __name__ == "__main__":
    cli.main()
