#!/usr/bin/env bash
# Tests discovery, doctor, CDI and the reading of processes on a machine with NVIDIA's cards. It changes nothing on them.
#
# Needed: Go. With a C compiler the driver's library is tested too.
set -euo pipefail
cd "$(dirname "$0")/.."
export GOWORK=off
tags=nomsgpack,hw packages=(./internal/agent/inventory ./internal/agent/doctor ./internal/agent/inject)
if command -v "${CC:-gcc}" >/dev/null; then
  export CGO_ENABLED=1
  tags+=,nvml,grpcnotrace
else
  echo "NOT RUN: the driver's library (no C compiler)"
fi
"${GO:-go}" test -vet=off -tags "$tags" -count=1 -v -run ThisMachine "${packages[@]}" | grep -E '^ *(--- |ok|FAIL|PASS|panic|.*_test.go)|NOT RUN'
