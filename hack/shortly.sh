#!/usr/bin/env bash
# Runs go test -v and shows a line for each test and what did not run; what failed is shown whole at the end.
#
#   shortly.sh LOG COMMAND…     LOG holds all of the output
set -uo pipefail
cd "$(dirname "$0")/.."
log=$1
shift
mkdir -p bin "$(dirname "$log")"
printf '%s\n' "$*"
"$@" 2>&1 | tee "$log" | grep --line-buffered -E '^( *--- FAIL|--- |ok|FAIL|panic: )|NOT RUN'
code=${PIPESTATUS[0]}
[ "$code" = 0 ] || bash hack/failed.sh "$log" | tee -a bin/failed.log
exit "$code"
