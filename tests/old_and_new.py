#!/usr/bin/env python3
"""Shows every difference in what two builds print, write and return for the same inputs.

    tests/old_and_new.py OLD NEW

OLD and NEW are executables, with their modules beside them. Help, schemas, plans, reports, comparisons and
gates in all forms, bad input, and losses of networks with a fixed seed on the CPU. Ends with 1 where something
differs: each difference has to be a mend, or a better word.
"""

import difflib
import json
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path.insert(0, str(HERE / "cli"))
import made_up  # pylint: disable=wrong-import-position

FORMS = ["markdown", "text", "github", "csv", "junit", "prometheus", "tf_cnn_benchmarks", "go",
         "google-benchmark", "github-action-benchmark"]
NETWORKS = ["resnet20", "resnet18", "resnet50", "vgg16", "vit_b_16", "bert_tiny"]
# What is of one build, one start or one folder.
VOLATILE = [(r"/tmp/[\w./-]*", "TMP"), (r"\b[0-9a-f]{64}\b", "HASH"), (r"\b[0-9a-f]{40}\b", "COMMIT"),
            (r"commit \S+.*", "commit")]


def commands(folder):
    """Names and words of all that is run."""
    yield "help", ["--help"]
    for name in ("run", "sweep", "plan", "compare", "gate", "report", "baseline", "rerun", "micro", "doctor",
                 "validate", "export", "import", "stress", "tf_cnn_benchmarks"):
        yield "help " + name, [name, "--help"]
    for kind in ("report", "comparison", "plan", "layout", "doctor", "baselines"):
        yield "schema " + kind, ["schema", kind]
    for shape in ("1x1x1", "1x2x2", "2*(1x1x2)", "2x1x4", "1x1x9", "1xbanana"):
        for form in ("text", "json", "sh", "slurm", "mpijob"):
            image = ["--image", "nearmetal"] if form == "mpijob" else []
            yield f"plan {shape} {form}", ["plan", shape, "--hosts", "a:4,b:4", "--format", form, *image]
    for layout in sorted((ROOT / "layouts").glob("*.json")):
        yield f"plan {layout.name}", ["plan", str(layout), "--format", "json"]
    reports = [*sorted(HERE.glob("data/report-*.json")), *sorted(HERE.glob("fuzz/corpus/*.json")),
               folder / "bare.json", folder / "vm.json", folder / "ranks.json"]
    for report in reports:
        yield f"validate {report.name}", ["validate", str(report)]
        for form in FORMS if report.parent.name != "corpus" else FORMS[:1]:  # most of these are refused
            yield f"report {report.name} {form}", ["report", str(report), "--format", form]
    pair = [str(folder / "bare.json"), str(folder / "vm.json")]
    of_ranks = str(folder / "ranks.json")
    for words in (["compare", of_ranks, of_ranks], ["gate", of_ranks, of_ranks, "--require-clean"],
                  ["compare", *pair], ["compare", *pair, "--json"], ["compare", "--bare", pair[0], "--vm", pair[1]],
                  ["compare", pair[0], pair[0]], ["compare", *pair, "--metric", "p99_step_seconds"],
                  ["gate", *pair], ["gate", *pair[::-1]], ["gate", pair[0], pair[0], "--min-runs", "9"],
                  ["gate", *pair, "--json"], ["gate", *pair, "--require-clean"],
                  ["compare", *pair, "--format", "github"], ["compare", "none.json", pair[0]],
                  ["report", "none.json"], ["report"], ["run", "--batch", "-1"], ["run", "--model", "nothing"],
                  ["sweep", "1x1x"], ["gate", pair[0]], ["nothing"]):
        yield " ".join(word.rsplit("/", 1)[-1] for word in words), words


def losses(program, network, folder):
    """As the report has them, bit by bit."""
    report = folder / "losses.json"
    size = ["--sequence", "32"] if network.startswith("bert") else ["--image-size", "32"]
    done = subprocess.run([program, "run", "--device", "cpu", "--model", network, *size, "--batch", "2", "--threads",
                           "1", "--seed", "7", "--steps", "6", "--warmup", "2", "--plan-cache", "off",
                           "--output", str(report), "--force", "--no-progress"],
                          cwd=folder, capture_output=True, text=True, check=False)
    done.check_returncode()
    rank, = json.loads(report.read_text(encoding="utf-8"))["arms"][0]["runs"][0]["ranks"]
    return json.dumps(rank["loss"][:8])  # more of them follow until steps are steady


def said_by(program, words, folder):
    done = subprocess.run([program, *words], cwd=folder, capture_output=True, text=True, check=False,
                          stdin=subprocess.DEVNULL)
    text = f"exit {done.returncode}\n{done.stdout}{done.stderr}"
    for pattern, stand_in in VOLATILE:
        text = re.sub(pattern, stand_in, text.replace(program, "nearmetal"))
    return text


def main():
    old, new = (str(pathlib.Path(path).resolve()) for path in sys.argv[1:3])
    differing = compared = 0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "bare.json").write_text(json.dumps(made_up.sweep(0, False, 1)), encoding="utf-8")
        (folder / "vm.json").write_text(json.dumps(made_up.sweep(60, True, 0.95)), encoding="utf-8")
        subprocess.run([old, "sweep", "1x1x1", "1x1x2", "--hosts", "localhost:0", "--model", "resnet20", "--image-size",
                        "32", "--batch", "2", "--threads", "1", "--warmup", "2", "--steps", "20", "--repeats", "2",
                        "--output", str(folder / "ranks.json"), "--no-progress"],
                       cwd=folder, capture_output=True, check=True)  # has warnings, monitors and ranks
        pairs = [(title, *(said_by(program, words, folder) for program in (old, new)))
                 for title, words in commands(folder)]
        pairs += [("losses of " + network, *(losses(program, network, folder) for program in (old, new)))
                  for network in NETWORKS]
    for title, before, after in pairs:
        compared += 1
        if before == after:
            continue
        differing += 1
        print(f"== {title}")
        lines = difflib.unified_diff(before.splitlines(), after.splitlines(), "old", "new", lineterm="", n=0)
        print("\n".join(line[:300] for line in lines))
    print(f"{differing} of {compared} differ")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
