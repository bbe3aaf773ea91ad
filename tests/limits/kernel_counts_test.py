"""How many kernels each file compiles to: as many as kernel_counts.json says.

Each is compiled for every chip, and templates multiply without a sign: where a number grows, look
whether a network launches what is new. `kernel_counts_test.py --write OBJECT...` writes the file.
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import unittest

COUNTS = pathlib.Path(__file__).with_name("kernel_counts.json")
# A kernel's host function, whose name ends as those of all our kernels do.
KERNEL = re.compile(r" [tTWV] (.*_kernel[<(].*)")


def source_of(item):
    """build/models/cuda/CMakeFiles/x.dir/./kernels/a.cu.o: models/cuda/kernels/a.cu"""
    folder, inside = re.fullmatch(r"(?:.*/)?((?:models|comm)/.*)CMakeFiles/[^/]*/(.*)\.o",
                                  os.path.normpath(item)).groups()
    return folder + inside


def kernels_of(item):
    lines = subprocess.run(["nm", "--demangle", item], check=True, capture_output=True,
                           text=True).stdout.splitlines()
    found = {match[1] for match in map(KERNEL.search, lines) if match}
    return len({name for name in found if "[clone" not in name})


def counts_of(objects):
    return {source_of(item): kernels_of(item) for item in sorted(objects) if item.endswith(".cu.o")}


class KernelCounts(unittest.TestCase):
    def test_are_as_committed(self):
        self.maxDiff = None
        self.assertEqual(counts_of(sys.argv[1:]), json.loads(COUNTS.read_text(encoding="utf-8")))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--write"]:
        COUNTS.write_text(json.dumps(counts_of(sys.argv[2:]), indent=2) + "\n", encoding="utf-8")
    else:
        unittest.main(argv=sys.argv[:1])
