#!/usr/bin/env bash
# tenon-scheduler's default profile without and with ElasticQuota on one embedded control plane, and Go benchmarks of the
# parts; prints Markdown tables. Arguments go to the harness: quota.sh --nodes 1000,5000 --pods 2000 --rounds 20 --cases q
set -euo pipefail
cd "$(dirname "$0")/../.."
export GOWORK=off CGO_ENABLED=0
go=${GO:-go} tags=${TAGS:-nomsgpack}
mkdir -p bin
"$go" build -tags "$tags" -trimpath -ldflags '-s -w' -o bin/tenon-scheduler ./cmd/tenon-scheduler
"$go" build -tags "$tags" -trimpath -o bin/compare ./test/bench/compare
"$go" test -tags "$tags" -trimpath -c -o bin/quota.test ./internal/core/quota
"$go" test -tags "$tags" -trimpath -c -o bin/elasticquota.test ./internal/sched/elasticquota
exec bin/compare --suite quota --tenon bin/tenon-scheduler --go-tests bin --nodes 1000 --rounds 8 "$@"
