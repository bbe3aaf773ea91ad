#!/usr/bin/env bash
# Sets up, builds, and runs every check and test: what continuous integration runs.
# Goes on after a check that failed, names those at the end and then exits with 1.
set -euo pipefail
# shellcheck source=scripts/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
cd "$root"

jobs=$(nproc)
test_jobs=$((jobs + (jobs + 1) / 2)) # as tests wait for processes, clocks and one another
tidy_seconds=120 # at most, so that many changed files do not hold up the rest
failed=()

# Where the build folder is new, and nobody says for which chips: the oldest, as code that the driver
# compiles for any, and the one with most kernels of its own. All are compiled for by
# ctest -C slow -R architectures.
export CUDAARCHS=${CUDAARCHS:-75-virtual;90a-real}

# check TITLE COMMAND [ARGUMENT...]
check() {
  local title=$1 start=$SECONDS
  shift
  say "$title ..."
  if "$@"; then
    say "$title: ok ($((SECONDS - start)) s)"
  else
    say "$title: FAILED"
    failed+=("$title")
  fi
}

check_format() {
  find . -path './build*' -prune -o -regex '.*\.\(h\|cpp\|cu\)' -print0 |
    xargs -0 "$lint_tools/bin/clang-format" --dry-run -Werror
}

check_sources() { python3 -B scripts/check_sources_test.py && scripts/check_sources.py; }

# Host files that are new, or whose header is: since main, or on main itself in its last commit. The
# latest come first, as there may be no time for all.
changed_files() {
  local base
  base=$(git merge-base HEAD origin/main 2>/dev/null) || base=
  if [[ -z $base || $base == $(git rev-parse HEAD) ]]; then
    base=$(git rev-parse --verify --quiet HEAD~1) || base= # where all that was cloned is new
  fi
  {
    git ls-files --others --exclude-standard -- '*.cpp' '*.h' &&
      git diff --name-only HEAD -- '*.cpp' '*.h' &&
      git log --format= --name-only "${base:+$base..}HEAD" -- '*.cpp' '*.h'
  } | sed 's/\.h$/.cpp/' | awk '!seen[$0]++' | while read -r file; do
    if [[ -f $file ]] && grep -q "/$file\"" build-tidy/compile_commands.json; then echo "$file"; fi
  done
}

check_tidy() {
  local preset=$1 files log=build-tidy/clang-tidy.log status=0
  # File by file, so that what a file takes from the one before it in a unity build is missed.
  configure "$preset" -B build-tidy -DCMAKE_UNITY_BUILD=OFF -DNEARMETAL_TESTS=ON >/dev/null || return 1
  files=$(changed_files) || return 1
  timeout "$tidy_seconds" xargs --no-run-if-empty --max-args=1 --max-procs="$jobs" \
    "$lint_tools/bin/clang-tidy" --quiet -p build-tidy <<<"$files" >"$log" 2>&1 || status=$?
  grep -v 'warnings generated' "$log"
  if ((status == 124)); then
    say "stopped after $tidy_seconds s: not all of $(wc -l <<<"$files") files were read"
    if ! grep -q 'error:' "$log"; then return 0; fi
  fi
  return "$status"
}

# The host code under sanitizers: unit tests, backends, exchange, and runs of a tiny network.
check_sanitizers() {
  local cpu=$1
  # Built by Clang, which compiles checked code in half the time of GCC, and warns of other things.
  configure debug -DNEARMETAL_CPU="$cpu" -DNEARMETAL_TESTS=ON -DNEARMETAL_WERROR=ON &&
    cmake --build --preset debug &&
    ctest --preset debug --no-tests=error -j "$test_jobs"
}

main() {
  local preset cpu=ON options=()
  (($# == 0)) || die "takes no arguments: it sets up, builds, and runs every check and test"
  preset=$(scripts/setup.sh --tests)
  if [[ $preset == gpu-only ]]; then cpu=OFF; fi

  check format check_format
  check sources check_sources
  # What scripts/quickstart.sh has built there stays: another flag would build all of it anew.
  if [[ ! -f build/CMakeCache.txt ]]; then options=(-DNEARMETAL_WERROR=ON); fi
  say "build ($preset) ..."
  configure "$preset" -DNEARMETAL_TESTS=ON "${options[@]}"
  cmake --build --preset "$preset"
  check tidy check_tidy "$preset"
  check sanitizers check_sanitizers "$cpu"
  check fuzz scripts/fuzz.sh
  check tests ctest --test-dir build --no-tests=error --output-on-failure \
    --timeout 300 -j "$test_jobs"

  ((${#failed[@]} == 0)) || die "FAILED: ${failed[*]}"
}

main "$@"
