#!/usr/bin/env bash
# Pods with GPUs in tenon-scheduler beside plain pods in it and in kube-scheduler, on one embedded control plane; prints
# a Markdown table. Arguments go to the harness: device.sh --nodes 1000 --rounds 5 --cases a,g
set -euo pipefail
cd "$(dirname "$0")/../.."
export GOWORK=off CGO_ENABLED=0
go=${GO:-go} tags=${TAGS:-nomsgpack}
mkdir -p bin
"$go" build -tags "$tags" -trimpath -ldflags '-s -w' -o bin/kube-scheduler k8s.io/kubernetes/cmd/kube-scheduler
"$go" build -tags "$tags" -trimpath -ldflags '-s -w' -o bin/tenon-scheduler ./cmd/tenon-scheduler
"$go" build -tags "$tags" -trimpath -o bin/compare ./test/bench/compare
exec bin/compare --suite device --stock bin/kube-scheduler --tenon bin/tenon-scheduler --nodes 1000 --rounds 5 "$@"
