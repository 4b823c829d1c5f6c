#!/usr/bin/env bash
# Builds kube-apiservers of several minor releases of Kubernetes from their modules, and runs Tenon on each.
#
#   compat.sh MINOR...    such as 1.33 1.37
#
# TENON_BIN is the program that is tested. The API servers are kept in .cache/apiserver (TENON_CACHE: another folder than
# .cache); each takes 5 to 10 CPU-minutes to build, once.
set -euo pipefail
cd "$(dirname "$0")/.."
export GOWORK=off CGO_ENABLED=0
GO=${GO:-go} TAGS=${TAGS:-nomsgpack}
cache=${TENON_CACHE:-$PWD/.cache}/apiserver
stamp=k8s.io/component-base/version
built_in=$("$GO" list -m -f '{{.Version}}' k8s.io/kubernetes)
for minor in "$@"; do
  release=$built_in server= # the program has the API server of its own release
  if [[ $release != v$minor.* ]]; then
    modules=k${minor/./}.mod
    release=$(awk '$1 == "k8s.io/kubernetes" { print $2 }' "hack/tools/apiserver/$modules")
    server=$cache/$release/kube-apiserver
  fi
  if [ -n "$server" ] && [ ! -x "$server" ]; then
    echo "building kube-apiserver $release"
    "$GO" -C hack/tools/apiserver build -modfile="$modules" -tags "$TAGS" -trimpath -o "$server.new" \
      -ldflags "-s -w -X $stamp.gitVersion=$release -X $stamp.gitMajor=1 -X $stamp.gitMinor=${minor#1.}" \
      k8s.io/kubernetes/cmd/kube-apiserver
    mv "$server.new" "$server"
  fi
  echo "Kubernetes $release"
  TENON_APISERVER=$server TENON_MINOR=$minor "$GO" test -tags "$TAGS" -vet=off -count=1 -timeout 20m -v \
    -run '^TestAnotherReleaseOfKubernetes$' ./test/system
done
