#!/usr/bin/env bash
# Takes runs, compares them with a baseline and keeps what a CI shows. Its exit code is that of the
# run where it fails, else that of `nearmetal gate`: 0 pass, 1 fail, 3 inconclusive, ...
#
# The environment says what to do. What is blank at both ends of a value is taken off; several lines are
# refused (exit 2). Options are words with blanks, tabs or line ends between; quotes and backslashes are
# refused, as they would not do what they do in a shell:
#   NEARMETAL               the program [nearmetal]
#   NEARMETAL_BASELINE      the name of the baseline [main]
#   NEARMETAL_BASELINES     the folder that holds baselines [baselines]
#   NEARMETAL_RUNS          how many runs are taken [5]
#   NEARMETAL_RUN_OPTIONS   of `nearmetal run`: --batch 512 ...
#   NEARMETAL_GATE_OPTIONS  of `nearmetal gate`: --margin 1% ... [--max-detectable 10%]
#   NEARMETAL_OUTPUT        the folder for what is kept, whose old runs go [nearmetal-ci]
#
# It keeps runs.report.json, gate.md, gate.html and gate.junit.xml. On GitHub the table, or why there
# is none, is added to the summary of the step and `exit-code` to its outputs.
set -euo pipefail

errors=$(mktemp)
trap 'rm -f "$errors"' EXIT

# Runs a command whose standard error is kept, too.
with_errors_kept() { # FILE-FOR-OUTPUT COMMAND...
  { "${@:2}" 2>&1 >&3 | tee "$errors" >&2; } 3>"$1"
}

finish() { # CODE HEADING FILE [ERRORS]
  if [[ -n ${GITHUB_STEP_SUMMARY:-} ]]; then
    {
      printf '### nearmetal: %s\n\n' "$2" && cat "$3"
      if [[ -s ${4:-} ]]; then printf '~~~\n%s\n~~~\n' "$(tail -n 20 "$4")"; fi
      echo
    } >>"$GITHUB_STEP_SUMMARY"
  fi
  if [[ -n ${GITHUB_OUTPUT:-} ]]; then echo "exit-code=$1" >>"$GITHUB_OUTPUT"; fi
  cat "$3"
  exit "$1"
}

refuse() { # REASON
  echo "gate.sh: $1" | tee "$errors" >&2
  finish 2 "nothing was run (exit 2)" /dev/null "$errors"
}

value_of() { # NAME DEFAULT
  local value
  read -d '' -r value <<<"${!1:-}" || true # takes off what is blank at both ends
  if [[ $value == *$'\n'* ]]; then refuse "$1 has several lines"; fi
  printf '%s\n' "${value:-$2}"
}

require_words() { # NAME
  if [[ ${!1:-} == *[\'\"\\]* ]]; then
    refuse "$1 has quotes or backslashes: its options are words with blanks or line ends between"
  fi
}

output=$(value_of NEARMETAL_OUTPUT nearmetal-ci)
mkdir -p -- "$output"
runs=$output/runs.report.json
# A run that was stopped before leaves a journal, and what it shows is not of now.
rm -f -- "$output"/runs.report.json{,l} "$output"/gate.{md,html,junit.xml}

program=$(value_of NEARMETAL nearmetal)
baseline=$(value_of NEARMETAL_BASELINE main)
baselines=$(value_of NEARMETAL_BASELINES baselines)
repeats=$(value_of NEARMETAL_RUNS 5)
require_words NEARMETAL_RUN_OPTIONS
require_words NEARMETAL_GATE_OPTIONS
read -d '' -ra run_options <<<"${NEARMETAL_RUN_OPTIONS:-}" || true # ends at the end, not at a line's
read -d '' -ra gate_options <<<"${NEARMETAL_GATE_OPTIONS:-}" || true

# Runs that could not show even a large drop are no reason to pass.
if [[ " ${gate_options[*]}" != *" --max-detectable"* ]]; then gate_options+=(--max-detectable 10%); fi

code=0
with_errors_kept "$output/runs.txt" "$program" run "${run_options[@]}" \
  --repeats "$repeats" --output "$runs" --force || code=$?
if ((code != 0)); then finish "$code" "the runs failed (exit $code)" "$output/runs.txt" "$errors"; fi

with_errors_kept "$output/gate.md" "$program" gate "$baseline" "$runs" --baselines "$baselines" \
  "${gate_options[@]}" --markdown --html "$output/gate.html" --junit "$output/gate.junit.xml" \
  --force || code=$?
readonly no_complete_run=5
if ((code == no_complete_run)) && [[ ! -s $output/gate.md && ! -d $baselines/$baseline ]]; then
  command=("$program" baseline add "$baseline" "$runs" --baselines "$baselines")
  printf 'There is no baseline yet:%s\n' "$(printf ' %q' "${command[@]}")" >"$output/gate.md"
fi
# A gate that gave no answer has its reason on standard error alone.
reason=$errors
if [[ -s $output/gate.md ]]; then reason=; fi
finish "$code" "gate against $baseline (exit $code)" "$output/gate.md" "$reason"
