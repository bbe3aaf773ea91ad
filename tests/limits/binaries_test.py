"""From where what is built takes its libraries, and how it is hardened.

    binaries_test.py [--hardened] PROGRAM FILE...

PROGRAM is nearmetal, the files are all others that were linked; those that are not built yet are left
out. --hardened: host code was compiled with what a build with sanitizers leaves out.
"""

import os
import re
import subprocess
import sys
import unittest

HARDENED = "--hardened" in sys.argv
PROGRAM, *FILES = [path for path in sys.argv[1:] if path != "--hardened"]
MODULE = re.compile(r"libnearmetal_\w+\.so")


def readelf(path, option):
    return subprocess.run(["readelf", "-W", option, path], check=True, text=True,
                          capture_output=True).stdout


class Binaries(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.dynamic = {path: readelf(path, "-d") for path in [PROGRAM, *FILES]
                       if path == PROGRAM or os.path.exists(path)}

    def test_no_library_comes_from_the_current_folder(self):
        """Which an empty element stands for."""
        for path, dynamic in self.dynamic.items():
            for places in re.findall(r"\((?:RPATH|RUNPATH)\).*\[(.*)\]", dynamic):
                for place in places.split(":"):
                    self.assertRegex(place, r"^(/|\$ORIGIN(/|$))", f"{path}: {places}")

    def test_all_are_bound_before_they_run(self):
        for path, dynamic in self.dynamic.items():
            self.assertRegex(dynamic, r"\(FLAGS(_1)?\).*NOW", path)
            self.assertIn("GNU_RELRO", readelf(path, "-l"), path)

    @unittest.skipUnless(HARDENED, "sanitizers check more")
    def test_overflows_are_seen(self):
        for path in self.dynamic:
            if path == PROGRAM or MODULE.fullmatch(os.path.basename(path)):
                self.assertIn("__stack_chk_fail", readelf(path, "--dyn-syms"), path)
        self.assertRegex(readelf(PROGRAM, "--dyn-syms"), r"_chk@")


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0]])
