#!/usr/bin/env bash
# tenon-scheduler in a cluster without Reservations and in one with 200 that are for other pods, and a Go benchmark of the
# plugin; prints Markdown tables. Arguments go to the harness: reservation.sh --nodes 1000,5000 --pods 5000 --rounds 8
set -euo pipefail
cd "$(dirname "$0")/../.."
export GOWORK=off CGO_ENABLED=0
go=${GO:-go} tags=${TAGS:-nomsgpack}
mkdir -p bin
"$go" build -tags "$tags" -trimpath -ldflags '-s -w' -o bin/tenon-scheduler ./cmd/tenon-scheduler
"$go" build -tags "$tags" -trimpath -o bin/compare ./test/bench/compare
"$go" test -tags "$tags" -trimpath -c -o bin/reserving.test ./internal/sched/reserving
exec bin/compare --suite reservation --tenon bin/tenon-scheduler --go-tests bin --nodes 500,2000 --pods 2000 --rounds 3 "$@"
