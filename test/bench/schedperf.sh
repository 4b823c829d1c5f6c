#!/usr/bin/env bash
# Upstream's scheduler_perf with the stock profile and with Tenon's plugins. The label chooses the sizes: short (100 nodes)
# or performance (1,000 and 5,000). Results are printed, and kept as JSON in test/bench/schedperf.
#   schedperf.sh [LABEL] [go test arguments]
set -euo pipefail
cd "$(dirname "$0")/schedperf"
export GOWORK=off KUBE_CACHE_MUTATION_DETECTOR=false
label="${1:-short}"
[ $# -eq 0 ] || shift
# The harness finds files of its own by the paths that -trimpath leaves out.
exec go test -trimpath=false -run '^$' -bench . -benchtime 1x -timeout 60m -perf-scheduling-label-filter "$label" "$@"
