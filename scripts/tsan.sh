#!/usr/bin/env bash
# Looks for races between threads of the host code, by ThreadSanitizer: in the unit tests, in tests of
# two ranks, and in a sweep of two. Builds in build-tsan/.
set -euo pipefail
# shellcheck source=scripts/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
cd "$root"

main() {
  (($# == 0)) || die "takes no arguments"
  configure debug -B build-tsan -DNEARMETAL_SANITIZE=thread -DNEARMETAL_FUZZ=OFF \
    -DNEARMETAL_TESTS=ON >&2
  cmake --build build-tsan >&2
  # On one CPU, where OpenMP starts no threads: how those meet the sanitizer does not see.
  taskset --cpu-list 0 ctest --test-dir build-tsan --output-on-failure --no-tests=error \
    --label-regex unit --exclude-regex '^reference_test'
  # How Open MPI locks it does not see either.
  export TSAN_OPTIONS="report_mutex_bugs=0 detect_deadlocks=0 suppressions=$root/scripts/tsan_suppressions.txt"
  taskset --cpu-list 0 ctest --test-dir build-tsan --output-on-failure --no-tests=error \
    --tests-regex '^comm.ranks_test_2$'
  taskset --cpu-list 0 build-tsan/nearmetal sweep 1x1x2 --hosts localhost:0 --model resnet20 \
    --image-size 32 --batch 2 --warmup 1 --steps 20 --repeats 1 --output build-tsan/sweep.json --force
}

main "$@"
