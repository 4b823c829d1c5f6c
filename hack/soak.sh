#!/usr/bin/env bash
# Searches further than `make test` can: every property test with a fresh seed and more cases, then every fuzz target.
#
#   soak.sh [properties|fuzz]     both without an argument
#
# A failure is repeated with the seed, or the input file, that the failing line shows.
#
#   SOAK_CHECKS=10000    cases of each property
#   SOAK_SEED=N          this seed for every package, instead of a fresh one for each
#   SOAK_FUZZTIME=20s    time of each fuzz target
#   SOAK_EXECUTIONS=100  what each fuzz target must execute at least in that time
#   SOAK_ONLY=REGEXP     only these folders
set -uo pipefail
cd "$(dirname "$0")/.."
export GOWORK=off
GO=${GO:-go}
TAGS=${TAGS:-nomsgpack}
checks=${SOAK_CHECKS:-10000}
fuzztime=${SOAK_FUZZTIME:-20s}
executions=${SOAK_EXECUTIONS:-100}
failed=0
log=$(mktemp)
trap 'rm -f "$log"' EXIT

# tested PATTERN: the folders with tests that need no tag, one of whose test files contains a line of this pattern.
tested() {
  git grep -lE "$1" -- '*_test.go' | xargs grep -LE '^//go:build' | xargs -n 1 dirname | sort -u | grep -E "${SOAK_ONLY:-.}"
}

properties() { # FOLDER CHECKS FLAGS…: its property tests with a seed of their own
  local folder=$1 n=$2 seed=${SOAK_SEED:-}
  shift 2
  [ -n "$seed" ] || seed=$(od -An -N6 -tu8 /dev/urandom | tr -d ' ')
  echo "$GO test -tags $TAGS ./$folder $* -rapid.checks=$n -rapid.seed=$seed"
  $GO test -tags "$TAGS" -timeout 2h "./$folder" "$@" -rapid.checks="$n" -rapid.seed="$seed" || failed=1
}

# ended: the log's only failure is that the time of a fuzz target was over, which Go before 1.27 may report as one
# (golang/go#75804).
ended() { grep -qx '    context deadline exceeded' "$log" && ! grep -q 'Failing input' "$log"; }

fuzz() { # FOLDER TARGET
  local count
  # By default each input that finds new code is made smaller for up to a minute, and a target with real inputs does
  # nothing else: seven executions in all were seen.
  if ! $GO test -tags "$TAGS" -run '^$' -fuzz "^$2\$" -fuzztime "$fuzztime" -fuzzminimizetime 100x "./$1" >"$log" 2>&1 && ! ended; then
    cat "$log"
    echo "FAIL  $1 $2"
    failed=1
    return
  fi
  count=$(grep -oE 'execs: [0-9]+' "$log" | tail -n 1 | grep -oE '[0-9]+')
  printf '%10d executions  %s %s\n' "${count:-0}" "$1" "$2"
  if [ "${count:-0}" -lt "$executions" ]; then
    echo "FAIL  $1 $2: fewer than $executions executions in $fuzztime"
    failed=1
  fi
}

if [ "${1:-properties}" = properties ]; then
  for folder in $(tested '^[[:space:]]+"pgregory.net/rapid"'); do
    properties "$folder" "$checks"
  done
  # Interleavings of the agent and the kernel: rare ones need many tries.
  [ -n "${SOAK_ONLY:-}" ] || properties internal/agent/apply $((10 * checks)) -run NoInstant
  # Gangs: other orders of events than those of make test.
  [ -n "${SOAK_ONLY:-}" ] || properties internal/core/gang $((40 * checks)) -run WholeOrNotAtAll
  # Devices: nodes that are decided by brute force too.
  for folder in device place; do
    [ -n "${SOAK_ONLY:-}" ] || properties internal/core/$folder $((10 * checks)) -run 'SetsAreAllThatIsFeasible|TheRestAreFoundTogether'
  done
  # Trees of quotas beside their definition: rare ones of five levels with ties and scaled mins.
  [ -n "${SOAK_ONLY:-}" ] || properties internal/core/quota $((20 * checks)) -run ForestsEqualTheDefinition
fi
if [ "${1:-fuzz}" = fuzz ]; then
  for folder in $(tested '^func Fuzz'); do
    for target in $(cat "$folder"/*_test.go | grep -oE '^func Fuzz[A-Za-z0-9]+' | cut -c6-); do
      fuzz "$folder" "$target"
    done
  done
fi
exit $failed
