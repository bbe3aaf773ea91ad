#!/usr/bin/env bash
# Measures which lines of the host code the tests run, without a GPU. Prints the share of each file below
# 80 % and of all, and writes build-coverage/coverage.json. Builds in build-coverage/.
set -euo pipefail
# shellcheck source=scripts/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
cd "$root"

main() {
  (($# == 0)) || die "takes no arguments"
  command -v gcovr >/dev/null || die "gcovr is missing: apt-get install gcovr"
  configure cpu-only -B build-coverage -DCMAKE_BUILD_TYPE=Debug -DNEARMETAL_TESTS=ON \
    -DCMAKE_CXX_FLAGS="--coverage -Og -Wno-error" >&2
  cmake --build build-coverage >&2
  find build-coverage -name '*.gcda' -delete
  # A test that its counters make too slow has run its lines all the same.
  ctest --test-dir build-coverage --parallel "$(nproc)" --no-tests=error >&2 || say "some tests failed"
  # Counters of several threads may be off, even below 0.
  gcovr --gcov-ignore-parse-errors --root . --object-directory build-coverage --filter 'bench/' --filter 'comm/' --filter 'reports/' \
    --filter 'models/' --json-summary build-coverage/coverage.json
  /usr/bin/python3 - build-coverage/coverage.json <<'PYTHON'
import json
import sys

with open(sys.argv[1], encoding="utf-8") as file:
    found = json.load(file)
for one in sorted(found["files"], key=lambda one: one["line_percent"] or 0):
    if one["line_total"] and one["line_percent"] < 80:
        print(f'{one["line_percent"]:5.1f} %  {one["line_covered"]:4} of {one["line_total"]:4}  {one["filename"]}')
print(f'{found["line_percent"]:5.1f} %  of {found["line_total"]} lines')
PYTHON
}

main "$@"
