"""Time limits as ctest takes them: multiplied by what the machine is slower."""

import json
import os
import statistics
import subprocess
import sys
import unittest
from unittest import mock

import slowdown

BUILD, CTEST = sys.argv[1:3]


def limits(percent):
    """Of all tests that have one, in seconds."""
    shown = subprocess.run([CTEST, "--test-dir", BUILD, "--show-only=json-v1"], check=True,
                           env={**os.environ, "NEARMETAL_TEST_SLOWDOWN": percent},
                           capture_output=True, text=True).stdout
    properties = {test["name"]: {each["name"]: each["value"] for each in test["properties"]}
                  for test in json.loads(shown[shown.index("{"):])["tests"]}
    return {name: each["TIMEOUT"] for name, each in properties.items() if "TIMEOUT" in each}


class Limits(unittest.TestCase):
    def test_all_are_scaled(self):
        idle, busy = limits("100"), limits("350")
        self.assertIn("cli.run_test", idle)
        self.assertEqual(busy, {name: 3.5 * seconds for name, seconds in idle.items()})

    def test_follow_the_time_of_the_loop_within_bounds(self):
        def found(times_slower):
            seconds = times_slower * slowdown.REFERENCE_SECONDS
            with mock.patch.object(slowdown, "loop_seconds", lambda: seconds), \
                    mock.patch.dict(os.environ, {"NEARMETAL_TEST_SLOWDOWN": ""}):
                return slowdown.slowdown(), slowdown.for_a_whole_suite()
        self.assertEqual(found(0.5), (1, 300), "those of an idle machine at least")
        self.assertEqual(found(4), (4, 400))
        self.assertEqual(found(1000), (slowdown.MOST, 100 * slowdown.MOST))

    def test_beside_other_work_the_loop_takes_longer(self):
        everywhere = os.sched_getaffinity(0)
        self.addCleanup(os.sched_setaffinity, 0, everywhere)
        os.sched_setaffinity(0, {min(everywhere)})
        alone = statistics.mean(slowdown.loop_seconds() for _ in range(20))
        busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(6)]
        try:
            beside = statistics.mean(slowdown.loop_seconds() for _ in range(20))
        finally:
            for process in busy:
                process.kill()
                process.wait()
        self.assertGreater(beside, 1.3 * alone)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
