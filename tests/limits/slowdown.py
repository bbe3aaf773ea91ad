"""How many times slower this machine is now than the one for which time limits of tests were set.

Beside other work, or on a slower processor, the same loop takes longer. As a program it prints the
number in percent.
"""

import os
import statistics
import time

# On two idle cores of an AMD EPYC of 2023, by Python 3.11.
REFERENCE_SECONDS = 0.01
MOST = 30
LEAST_FOR_A_SUITE = 3


def loop_seconds():
    start = time.perf_counter()
    total = 0
    for i in range(240_000):
        total += i * i
    return time.perf_counter() - start


def slowdown():
    told = os.environ.get("NEARMETAL_TEST_SLOWDOWN")
    if told:
        return int(told) / 100
    measured = statistics.mean(loop_seconds() for _ in range(5)) / REFERENCE_SECONDS
    return min(max(1, measured), MOST)


def for_a_whole_suite():
    """In percent. Load may come once the suite runs, so that it has some room at least."""
    return round(100 * max(slowdown(), LEAST_FOR_A_SUITE))


if __name__ == "__main__":
    print(for_a_whole_suite())
