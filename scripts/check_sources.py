#!/usr/bin/env python3
"""Checks which file includes what, how long files are, where functions are defined, and that documents name
what is there. Prints file:line of each breach.

    scripts/check_sources.py [FOLDER]            FOLDER: the project's root, by default the one above
    scripts/check_sources.py --numbers [FOLDER]  prints how large the project is instead
"""

import json
import pathlib
import re
import sys

# In patterns of paths, * is anything within a folder and ** anything at all.

# A top folder: what its files may include of the others. The most specific folder counts.
ARROWS = {
    "base": [],
    "bench": ["base/*.h", "comm/**.h", "reports/**", "models/*.h", "models/networks/*"],
    "comm": ["base/*.h", "reports/**", "models/*.h"],
    "comm/gpu": ["base/*.h", "models/*.h", "models/cuda/device/*.h", "models/cuda/kernels/pack.h"],
    "reports": ["base/*.h", "models/*.h"],
    "models": ["base/*.h"],
    "tests": ["**"],
}

# The rooms of a folder, as stacks of floors: a file may include its own room and those of floors
# that come earlier in its stack. Rooms of one floor, and stacks, do not meet. "." is the folder's
# own files.
FLOORS = {
    "bench": [["cli environment", "monitor", "run", "micro sweep", "tf_cnn_benchmarks doctor", "commands", "."]],
    "comm": [[".", "mpi gpu"], ["layout", "launch"]],
    "reports": [["statistics document", "json merge conditions", "attribution",
                 "compare imports",
                 "sharing forecast survey", "formats/charts", "formats"]],
    "models": [[".", "networks cpu cuda"]],
    "models/cuda": [["device", "kernels", "kernels/pointwise", "libraries", "compiler", "tuning", "."]],
}

# Headers of an outside library: the files that may include them, and how many may, if it matters.
# Tests may use any of these as an oracle.
FENCES = [
    ("regex", ["base/pattern.cpp"], None),
    ("CLI/**", ["bench/cli/command_line.cpp"], None),
    ("nlohmann/**", ["reports/**json*", "base/safetensors.cpp", "comm/**json*"], None),
    ("yaml-cpp/**", ["comm/launch/launch_script.cpp", "comm/layout/mig_config.cpp"], None),
    ("mpi.h", ["comm/mpi/*"], 3),
    ("nccl*", ["comm/gpu/*"], None),
    ("hwloc.h", ["bench/environment/*"], None),
    ("nvml.h", ["bench/environment/nvml*"], None),
    ("dnnl*", ["models/cpu/*"], None),
    ("oneapi/dnnl/*", ["models/cpu/*"], None),
    ("cudnn*", ["models/cuda/**"], None),
    ("cublas*", ["models/cuda/**"], None),
    ("cuda*", ["models/cuda/**", "comm/gpu/*"], None),
    ("gtest/*", [], None),
    ("gmock/*", [], None),
]

# All that a file of kernels may read from outside, itself or through our headers: nvcc reads it nine
# times for seven chips, and a string or a vector costs more than most kernels.
KERNEL_HEADERS = ["cuda_runtime.h", "cuda_fp16.h", "cuda_bf16.h",
                  "array", "cmath", "cstdint", "type_traits"]

# Where conditions get the codes that scripts read: warnings, causes, findings of doctor.
CODED = ["bench/doctor", "bench/run", "bench/sweep",
         "reports/attribution", "reports/compare", "reports/conditions", "reports/merge"]
CODE = re.compile(r'(?:[{?:]|return \{|Urgency::\w+,|\(run,|of_(?:machine|sides)\()\s*"([a-z0-9]+(?:_[a-z0-9]+)+)"')
# Sentences are for people: what code needs of them is a value beside. Lines of others' files are read.
SENTENCE = re.compile(r"(?:\.|->)(?:text|seen|why|fix|hint|failure|reason)(?:\.|->)(?:find\w*|rfind|"
                      r"starts_with|ends_with|substr|compare|contains|erase|insert)\(|\bwith_ranges\(")
OTHERS_LINES = ("reports/imports/", "reports/document/warning.cpp")  # and those of earlier reports
# Who judges a fact of the environment: by these a bad value is seen.
JUDGES = ["bench/doctor", "bench/monitor", "bench/run/rank_facts.cpp", "bench/environment/virtualisation.cpp",
          "reports/attribution", "reports/compare", "reports/conditions", "reports/document/environment.cpp", "reports/merge", "comm/layout"]
# Facts that are neither good nor bad by themselves: they tell what was measured, or why.
EVIDENCE = {
    "gpu": "name memory_bytes link_generation compute_capability driver_version serial vbios vgpu_scheduler bar1_bytes ecc dma_buf "
           "largest_memory_hertz cpu_affinity iommu_group iommu_type virtual_function",
    "limits": "huge_pages huge_page_bytes transparent_huge_pages numa_balancing open_files",
    "processor": "sockets cores numa_nodes governor largest_hertz microcode cache",
    "series": "cpu_busy_share power_watts temperature_celsius gpu_busy_share memory_busy_share "
              "memory_used_bytes pcie_sent_bytes_per_second pcie_received_bytes_per_second",
}
EXIT_CODE = re.compile(r"^  (\w+) = (\d+),", re.MULTILINE)

MAX_LINES = 500  # what one can still hold; a lower limit cut concepts in two
MAX_FILES = 45  # of a folder, itself
# Other limits, each with its reason.
LINE_LIMITS = {
    "bench/main.cpp": 50,  # the whole program at a glance
}

# Headers that would pull the network or the training step into everything: how many .cpp and .cu files may read
# each, themselves or through other headers; tests are not counted.
REACH = {"models/program.h": 129, "models/graph.h": 129}

# What x.cpp defines for others is declared in x.h. Where that is not so, and why:
AWAY = {
    "bench/commands/*.cpp": "one table of the commands, program.h, and a file for each",
    "models/cpu/cpu_program_step.cpp": "what a program does itself in a step, apart from what it is asked",
    "models/cuda/**": "programs and kernels, of which nvcc compiles forward and backward apart",
}

SOURCES = ("base", "bench", "comm", "models", "reports")
SUFFIXES = {".h", ".cpp", ".cu"}
# A function at the start of a line, with its body.
DEFINITION = re.compile(
    r"^(?!namespace|using|struct|class|enum|template|static|extern|inline|typedef|return|else|#|//|\})"
    r"[\w:<>,&*\[\] \n]*?\b((?:\w+::)*~?\w+)\(((?:[^;{}()]|\([^()]*\))*)\)[\w ]*(?:->[^{;]*)?"
    r"(?::[^;{]*(?:\{[^;{}]*\}[^;{]*)*)?\{", re.MULTILINE)
HIDDEN = re.compile(r"^namespace \{$.*?^\}  // namespace$", re.MULTILINE | re.DOTALL)
# A path of the tree in a document, in backticks or as a link; the notes tell of earlier trees, too.
MENTIONED_PATH = re.compile(
    r"[`(]((?:base|bench|comm|docs|layouts|models|reports|scripts|tests)/[\w./-]*\w)[`)]")
DOCUMENTS = ["*.md", "docs/*.md"]
INCLUDE = re.compile(r'\s*#\s*include\s*[<"]([^>"]+)[>"]')


def source_files(root):
    for folder in ("base", "bench", "comm", "models", "reports", "tests"):
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in SUFFIXES:
                yield path


def as_regex(pattern):
    return re.escape(pattern).replace(r"\*\*", ".*").replace(r"\*", "[^/]*")


def matches(name, patterns):
    return any(re.fullmatch(as_regex(pattern), name) for pattern in patterns)


def allowed_outside(name):
    """The includes of other top folders that a file may have: those of the innermost folder."""
    for folder in pathlib.PurePosixPath(name).parents:
        if str(folder) in ARROWS:
            return ARROWS[str(folder)]
    raise KeyError(f"{name} is in no folder that ARROWS knows")


def floor_of(folder, name):
    """Stack, floor and room of a file below a folder of FLOORS; the longest name of a room wins."""
    inside = str(pathlib.PurePosixPath(name).relative_to(folder).parent)
    found = None
    for number, stack in enumerate(FLOORS[folder]):
        for floor, rooms in enumerate(stack):
            for room in rooms.split():
                if inside == room or (room != "." and inside.startswith(room + "/")):
                    if found is None or len(room) > len(found[2]):
                        found = (number, floor, room)
    return found


def may_include(name, ours):
    if name.startswith("tests/"):
        return True
    top = name.split("/")[0]
    if not ours.startswith(top + "/"):
        return matches(ours, allowed_outside(name))
    for folder in FLOORS:
        if not (name.startswith(folder + "/") and ours.startswith(folder + "/")):
            continue
        here, there = floor_of(folder, name), floor_of(folder, ours)
        if here is None or there is None:
            return False
        if here[2] != there[2] and not (here[0] == there[0] and there[1] < here[1]):
            return False
    return True


def includes_of(path):
    """Line number and header of each include."""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if found := INCLUDE.match(line):
            yield number, found[1]


def included_path(root, path, header):
    """Our file that the header names, relative to the root, or None: from the root, or beside."""
    for candidate in (root / header, path.parent / header):
        if candidate.is_file() and root in candidate.resolve().parents:
            return candidate.resolve().relative_to(root).as_posix()
    return None


def check_file(root, path, users):
    """Breaches in one file; `users` collects, for each fence, the files that stand behind it."""
    name = path.relative_to(root).as_posix()
    lines = len(path.read_text(encoding="utf-8").splitlines())
    limit = LINE_LIMITS.get(name, MAX_LINES)
    if lines > limit:
        yield f"{name}:{lines}: {lines} lines, {limit} at most: split it by what changes together"
    for number, header in includes_of(path):
        ours = included_path(root, path, header)
        if ours is not None:
            if ours != header:
                yield f"{name}:{number}: write \"{ours}\", the path from the root, not {header}"
            if not may_include(name, ours):
                yield f"{name}:{number}: may not include {ours}"
        elif not name.startswith("tests/"):
            yield from check_fences(name, number, header, users)


def check_fences(name, number, header, users):
    for fence, homes, _ in FENCES:
        if matches(header, [fence]):
            users.setdefault(fence, set()).add(name)
            if not matches(name, homes):
                yield f"{name}:{number}: {header} belongs in {' or '.join(homes) or 'tests'} only"


def check_kernel_includes(root, kernels):
    """Headers that a file of kernels reads and that cost too much, where they are included."""
    known = set()
    unread = [kernels]
    while unread:
        path = unread.pop()
        for number, header in includes_of(path):
            ours = included_path(root, path, header)
            if ours is None and header not in KERNEL_HEADERS:
                yield (f"{path.relative_to(root).as_posix()}:{number}: {header} is not for "
                       f"kernels, and {kernels.relative_to(root).as_posix()} reads it")
            if ours is not None and ours not in known:
                known.add(ours)
                unread.append(root / ours)


def check_folders(root):
    """Folders that nobody finds their way in, and rooms that have no floor."""
    for folder in sorted({path.parent for path in source_files(root)}):
        name = folder.relative_to(root).as_posix()
        files = sum(1 for path in folder.iterdir() if path.is_file())
        if files > MAX_FILES:
            yield f"{name}:{files}: {files} files, {MAX_FILES} at most: give some a room"
        for house in FLOORS:
            if (name + "/").startswith(house + "/") and floor_of(house, name + "/file") is None:
                yield f"{name}:1: a room that FLOORS does not know"


def reach(root, header):
    """The .cpp and .cu files outside tests that read a header, themselves or through others."""
    users = {}
    for path in source_files(root):
        for _, name in includes_of(path):
            users.setdefault(name, set()).add(path.relative_to(root).as_posix())
    found, unread = set(), [header]
    while unread:
        new = users.get(unread.pop(), set()) - found
        found |= new
        unread.extend(new)
    return sorted(name for name in found if not name.endswith(".h") and name.startswith(SOURCES))


def types_of(parameters):
    """The types of a list of parameters, without names and defaults."""
    words = re.sub(r"\s*=[^,]*", "", re.sub(r"\s+", " ", parameters))
    parts = re.split(r",\s*(?![^<>]*>)(?![^()]*\))", words.strip())
    return [re.sub(r"(?<=[\w&*>]) ?\b\w+$", "", part) if " " in part else part for part in parts]


def declares(header, name, parameters):
    """Whether the text of a header declares a function, or the class that a member belongs to."""
    owner, _, function = name.rpartition("::")
    if owner:
        return re.search(rf"\b(?:class|struct) (?:\w+::)*{owner.split('::')[-1]}\b", header)
    return any(types_of(found[1]) == types_of(parameters) for found in
               re.finditer(rf"\b{function}\(((?:[^;{{}}()]|\([^()]*\)|\{{\}})*)\)", header))


def away_from_header(root):
    """File and name of each function that a header of another name declares."""
    headers = "\n".join(re.sub(r"//.*", "", path.read_text(encoding="utf-8")) for path in source_files(root)
                        if path.suffix == ".h" and path.relative_to(root).parts[0] in SOURCES)
    for path in source_files(root):
        if path.suffix == ".h" or path.relative_to(root).parts[0] not in SOURCES:
            continue
        own = path.with_suffix(".h")
        own = own.read_text(encoding="utf-8") if own.is_file() else ""
        for found in DEFINITION.finditer(HIDDEN.sub("", path.read_text(encoding="utf-8"))):
            if not declares(own, found[1], found[2]) and declares(headers, found[1], found[2]):
                yield path.relative_to(root).as_posix(), found[1]


def check_definitions(root):
    for name, function in away_from_header(root):
        if not matches(name, AWAY):
            header = pathlib.PurePosixPath(name).with_suffix(".h")
            yield f"{name}:1: {function} is declared elsewhere than in {header}"


def check_reach(root):
    for header, most in REACH.items():
        units = len(reach(root, header))
        if units > most:
            yield f"{header}:1: {units} sources read it, {most} at most: declare apart what they need"


def numbers(root):
    """How large the project is, a line for each number."""
    texts = {path.relative_to(root).as_posix(): path.read_text(encoding="utf-8") for path in source_files(root)}
    lines = {name: text.count("\n") for name, text in texts.items()}
    for folder in (*SOURCES, "tests"):
        names = [name for name in lines if name.startswith(folder + "/")]
        yield f"{folder}: {sum(map(lines.get, names))} lines in {len(names)} files"
    yield f"without tests: {sum(lines[name] for name in lines if not name.startswith('tests/'))} lines"
    types = [name for text in texts.values() for name in re.findall(r"^(?:struct|class|enum class) (\w+)[^;]*\{", text, re.M)]
    yield f"types: {len(types)}"
    away = [name for name, _ in away_from_header(root)]
    compiler = sum(name.startswith("models/cuda/compiler/") for name in away)
    yield f"functions away from their header: {len(away) - compiler}, and {compiler} of models/cuda/compiler"
    units = sum(not name.endswith(".h") and name.startswith(SOURCES) for name in lines)
    for header in REACH:
        yield f"{header}: read by {len(reach(root, header))} of {units} sources"


def check_documents(root):
    """Paths that documents name and that are not there."""
    for path in sorted(path for pattern in DOCUMENTS for path in root.glob(pattern)):
        text = path.read_text(encoding="utf-8")
        for number, line in enumerate(text.splitlines(), start=1):
            for name in MENTIONED_PATH.findall(line):
                if "NAME" in name:  # stands for a name of the reader's choice
                    continue
                if not ((root / name).exists() or (path.parent / name).exists()
                        or any((root / name).parent.glob(pathlib.Path(name).name + ".*"))):
                    yield f"{path.relative_to(root)}:{number}: there is no {name}"


def check_lists(root):
    """Sources that no list of CMake names, so that nothing builds them."""
    lists = "\n".join(path.read_text(encoding="utf-8") for folder in (*SOURCES, "tests")
                      for path in (root / folder).rglob("CMakeLists.txt"))
    for path in source_files(root):
        if lists and path.suffix != ".h" and not re.search(rf"\b{re.escape(path.name)}\b", lists):
            yield f"{path.relative_to(root).as_posix()}:1: no CMakeLists.txt names it"


def check_mutants(root):
    """Mutants whose expression is not once in their file (tests/mutants.py)."""
    mutants = root / "tests/mutants.json"
    for mutant in json.loads(mutants.read_text(encoding="utf-8")) if mutants.is_file() else []:
        path = root / mutant["file"]
        if not path.is_file() or path.read_text(encoding="utf-8").count(mutant["was"]) != 1:
            yield f"tests/mutants.json:1: the expression of \"{mutant['id']}\" is not once in {mutant['file']}"


def check_facts(root):
    """Facts that nobody judges and nobody calls evidence: a bad value of one would be seen by none."""
    schema = root / "reports/schema/report.schema.json"
    if not schema.is_file():
        return
    judges = "\n".join(path.read_text(encoding="utf-8") for path in source_files(root)
                       if path.relative_to(root).as_posix().startswith(tuple(JUDGES)))
    facts = {kind: list(json.loads(schema.read_text(encoding="utf-8"))["$defs"][kind]["properties"])
             for kind in EVIDENCE if kind != "series"}
    sources = (root / "bench/monitor/monitor_sources.cpp").read_text(encoding="utf-8")
    lists = re.findall(r"Source::names\(\) \{\s*return \{(.*?)\};", sources, re.S)
    facts["series"] = re.findall(r'"(\w+)"', "".join(lists))
    for kind, names in facts.items():
        evidence = EVIDENCE[kind].split()
        for name in names:
            pattern = (rf'"{name}"' if kind == "series" else
                       rf"(?:Gpu|Limits|Processor)::{name}\b|(?:gpus?(?:\[\w+\])?|one|limits|cpu|processor)(?:\.|->){name}\b")
            is_judged = re.search(pattern, judges.replace("".join(lists), ""))
            if not is_judged and name not in evidence + ["unknown"]:
                yield f"reports/schema/report.schema.json:1: nobody judges {name} of {kind}: is it evidence?"
        for name in evidence:
            if name not in names:
                yield f"scripts/check_sources.py:1: {kind} has no {name} to be evidence"


def check_sentences(root):
    """Code that looks into a sentence that code wrote."""
    for path in source_files(root):
        name = path.relative_to(root).as_posix()
        if name.startswith(("tests/", *OTHERS_LINES)):
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            if SENTENCE.search(line):
                yield f"{name}:{number}: it reads a sentence: give what it needs as a value beside it"


def check_codes(root):
    """Codes of conditions and of the exit that no test names: nobody would see them go."""
    tests = "\n".join(path.read_text(encoding="utf-8") for path in (root / "tests").rglob("*")
                      if path.suffix in (".cpp", ".h", ".py"))
    words = set(re.findall(r"\w+", tests))
    for path in source_files(root):
        name = path.relative_to(root).as_posix()
        if not name.startswith(tuple(folder + "/" for folder in CODED)):
            continue
        text = path.read_text(encoding="utf-8")
        for found in CODE.finditer(text):
            if found[1] not in words:
                line = text.count("\n", 0, found.start(1)) + 1
                yield f"{name}:{line}: no test names the code {found[1]}"
    errors = root / "base/errors.h"
    for name, number in EXIT_CODE.findall(errors.read_text() if errors.is_file() else ""):
        if not re.search(rf"ExitCode::{name}\b|(?:returncode, |returncode == |SIG[A-Z]+, ){number}\b", tests):
            yield f"base/errors.h:1: no test expects the exit code {number}, {name}"


def check(root):
    root = root.resolve()
    users = {}
    for path in source_files(root):
        yield from check_file(root, path, users)
        if path.suffix == ".cu":
            yield from check_kernel_includes(root, path)
    yield from check_folders(root)
    yield from check_definitions(root)
    yield from check_reach(root)
    yield from check_documents(root)
    yield from check_lists(root)
    yield from check_mutants(root)
    yield from check_facts(root)
    yield from check_sentences(root)
    yield from check_codes(root)
    for fence, _, most in FENCES:
        names = sorted(users.get(fence, ()))
        if most is not None and len(names) > most:
            yield f"{names[-1]}:1: {fence} is included by {len(names)} files, {most} at most"


def main():
    words = sys.argv[1:]
    asked = "--numbers" in words and not words.remove("--numbers")
    root = pathlib.Path(words[0]) if words else pathlib.Path(__file__).resolve().parent.parent
    if asked:
        print("\n".join(numbers(root.resolve())))
        return 0
    breaches = list(check(root))
    for breach in breaches:
        print(breach)
    return 1 if breaches else 0


if __name__ == "__main__":
    sys.exit(main())
