#!/usr/bin/env bash
# Stock kube-scheduler against tenon-scheduler on one embedded control plane; prints a Markdown table.
# Arguments go to the harness: run.sh --nodes 1000 --rounds 1 --cases a,b
set -euo pipefail
cd "$(dirname "$0")/../.."
export GOWORK=off CGO_ENABLED=0
mkdir -p bin
go build -tags nomsgpack -trimpath -ldflags '-s -w' -o bin/kube-scheduler k8s.io/kubernetes/cmd/kube-scheduler
go build -tags nomsgpack -trimpath -ldflags '-s -w' -o bin/tenon-scheduler ./cmd/tenon-scheduler
go build -tags nomsgpack -trimpath -o bin/compare ./test/bench/compare
# Of a program that the linker has just written up to 16 MB more may be resident than of a copy of it.
for program in kube-scheduler tenon-scheduler; do
	cp "bin/$program" "bin/$program.copy"
	mv "bin/$program.copy" "bin/$program"
done
exec bin/compare --stock bin/kube-scheduler --tenon bin/tenon-scheduler "$@"
