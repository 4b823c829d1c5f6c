#!/usr/bin/env bash
# Builds Karpenter with its provider of simulated nodes, and lets it add nodes to a local cluster.
#
# TENON_BIN is the program that is tested. Karpenter is kept in .cache/karpenter (TENON_CACHE: another folder than
# .cache); it takes 5 to 10 CPU-minutes to build, once.
set -euo pipefail
cd "$(dirname "$0")/.."
export GOWORK=off CGO_ENABLED=0
GO=${GO:-go} TAGS=${TAGS:-nomsgpack}
module=sigs.k8s.io/karpenter
version=$("$GO" -C test/karpenter list -m -f '{{.Version}}' $module)
program=${TENON_CACHE:-$PWD/.cache}/karpenter/$version/karpenter
if [ ! -x "$program" ]; then
  echo "building Karpenter $version"
  "$GO" -C test/karpenter build -trimpath -ldflags "-s -w" -o "$program.new" $module/kwok
  mv "$program.new" "$program"
fi
"$GO" -C test/karpenter mod download $module
TENON_KARPENTER=$program TENON_KARPENTER_SOURCES=$("$GO" -C test/karpenter list -m -f '{{.Dir}}' $module) \
  "$GO" test -tags "$TAGS" -vet=off -count=1 -timeout 20m -v -run '^TestKarpenter' ./test/system
