#!/usr/bin/env bash
# Gangs in tenon-scheduler, in kube-scheduler with its gates and in scheduler-plugins, on one embedded control plane;
# prints Markdown tables. Arguments go to the harness: gang.sh --nodes 1000,5000 --rounds 3 --cases fits,half
set -euo pipefail
cd "$(dirname "$0")/../.."
export GOWORK=off CGO_ENABLED=0
go=${GO:-go} tags=${TAGS:-nomsgpack}
mkdir -p bin
"$go" build -tags "$tags" -trimpath -ldflags '-s -w' -o bin/kube-scheduler k8s.io/kubernetes/cmd/kube-scheduler
"$go" build -tags "$tags" -trimpath -ldflags '-s -w' -o bin/tenon-scheduler ./cmd/tenon-scheduler
(cd test/bench/peers && "$go" build -tags "$tags" -trimpath -ldflags '-s -w' -o ../../../bin/scheduler-plugins .)
"$go" build -tags "$tags" -trimpath -o bin/compare ./test/bench/compare
exec bin/compare --suite gang --stock bin/kube-scheduler --community bin/scheduler-plugins --tenon bin/tenon-scheduler \
  --nodes 1000 --rounds 5 --limit 2m "$@"
