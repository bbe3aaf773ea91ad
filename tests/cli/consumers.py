"""Judges what nearmetal writes for other tools by what reads it: xmllint with the schemas of JUnit of Jenkins'
xunit plugin and of Ant's reports, promtool, Kubernetes' schema of pods, and the rules of benchstat's reader.
scripts/setup.sh --tests fetches them. What one that is missing would judge is skipped as a part of its test."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import xml.etree.ElementTree as ElementTree

import jsonschema

FOLDER = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "nearmetal/consumers"
# Of github.com/jenkinsci/xunit-plugin, which fails a step over it, and of github.com/windyroad/JUnit-Schema.
SCHEMAS = ("junit-10.xsd", "JUnit.xsd")
PROMTOOL = FOLDER / "promtool"
NO_SCHEMAS = ("" if shutil.which("xmllint") and all((FOLDER / schema).exists() for schema in SCHEMAS) else
              f"there is no xmllint, or no schema of JUnit in {FOLDER}")
# Kubernetes' own definitions as JSON Schema, in the strict form: no field but those that it knows.
KUBERNETES = FOLDER / "kubernetes-1.28.json"
NO_KUBERNETES = "" if KUBERNETES.exists() else f"no {KUBERNETES.name} in {FOLDER}"
NO_PROMTOOL = "" if PROMTOOL.exists() else f"promtool is not in {FOLDER}"


def refusal(text, *command):
    """What a program says of a text on its standard input; empty: it takes it."""
    process = subprocess.run(command, input=text.encode(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                             timeout=60, check=False)
    said = process.stdout.decode(errors="replace")
    return said or f"exit {process.returncode}" if process.returncode else ""


def refusal_of_schema(schema, text):
    return refusal(text, "xmllint", "--noout", "--nonet", "--schema", str(FOLDER / schema), "-")


def refusal_of_promtool(text):
    return refusal(text, str(PROMTOOL), "check", "metrics")


def assert_junit(test, text):
    """Also what no schema can say: numbers are those of what is there, and each case has a name."""
    suite = ElementTree.fromstring(text)
    cases = suite.findall("testcase")
    test.assertEqual(int(suite.get("tests")), len(cases))
    for kind, number in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped")):
        test.assertEqual(int(suite.get(number)), len(suite.findall("testcase/" + kind)), kind)
    test.assertTrue(all(case.get("name").strip() for case in cases))
    for schema in SCHEMAS:
        with test.subTest(schema=schema):
            if NO_SCHEMAS:
                test.skipTest(NO_SCHEMAS)
            test.assertEqual(refusal_of_schema(schema, text), "")


def assert_prometheus(test, text):
    """Also what promtool lets pass, and a textfile collector refuses: a family in pieces, a sample twice."""
    families, samples = [], []
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            families.append(line.split(" ")[2])
        elif not line.startswith("#"):
            samples.append(line.rsplit(" ", 1)[0])
            test.assertEqual(samples[-1].split("{")[0], families[-1])
    test.assertEqual(len(set(families)), len(families))
    test.assertEqual(len(set(samples)), len(samples))
    with test.subTest(program="promtool"):
        if NO_PROMTOOL:
            test.skipTest(NO_PROMTOOL)
        test.assertEqual(refusal_of_promtool(text), "")


def benchmarks(text):
    """(name, settings, values by unit) of each result, by the rules of golang.org/x/perf, benchfmt/reader.go.

    ValueError: a line that it refuses, or takes for none of its own, in which case it passes it over."""
    settings, units, results = {}, {}, []
    for line in text.removesuffix("\n").split("\n"):
        kind, *fields = line.split()
        setting = re.fullmatch(r"([a-z][^\sA-Z:]*):(?:[ \t]+(.*))?", line)
        if line.startswith("Benchmark"):
            count, *measures = fields
            int(count)
            values = {unit: float(value) for value, unit in zip(measures[::2], measures[1::2], strict=True)}
            if kind == "Benchmark" or not values:
                raise ValueError(f"no name or no measurement: {line}")
            results.append((kind.removeprefix("Benchmark"), dict(settings), values))
        elif kind == "Unit":
            unit, *pairs = fields
            for key, value in (pair.split("=", 1) for pair in pairs):
                if not key or units.setdefault((unit, key), value) != value:
                    raise ValueError(f"another {key} of {unit}: {line}")
        elif setting:
            settings.pop(setting[1], None)
            if setting[2]:
                settings[setting[1]] = setting[2]
        else:
            raise ValueError(f"passed over: {line}")
    return results


def assert_benchmarks(test, text):
    """Also that benchstat knows of each rate that more is better."""
    for name, _, values in benchmarks(text):
        test.assertRegex(name, r"^[A-Z]")
        test.assertTrue(all(value > 0 for value in values.values()), name)
        time, rate = values
        test.assertEqual(time, "ns/op")
        test.assertIn(f"Unit {rate} better=higher\n", text)


def refusals_of_pods(manifest):
    """What Kubernetes says of those of an MPIJob: its definition of them is a part of the operator's."""
    pod = "#/definitions/io.k8s.api.core.v1.PodTemplateSpec"
    judge = jsonschema.Draft7Validator({**json.loads(KUBERNETES.read_bytes()), "$ref": pod})
    return [error.message for replicas in manifest["spec"]["mpiReplicaSpecs"].values()
            for error in judge.iter_errors(replicas["template"])]


def assert_pods(test, manifest):
    with test.subTest(schema=KUBERNETES.name):
        if NO_KUBERNETES:
            test.skipTest(NO_KUBERNETES)
        test.assertEqual(refusals_of_pods(manifest), [])


# By the name of their form of `report`.
JUDGES = {"junit": assert_junit, "prometheus": assert_prometheus, "go": assert_benchmarks}
