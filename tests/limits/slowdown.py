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


if __name__ == "__main__":
    print(round(100 * slowdown()))
