#!/usr/bin/env bash
# Writes the generated files: deep copies of the API types, the CRDs of the kinds that Tenon owns, the code of the runtime
# hook protocol, reference pages, the chart's values, the manifests that the chart renders, the pages of the console and
# their types.
# With --check nothing is written: it fails when a generated file differs from what is committed.
set -euo pipefail
cd "$(dirname "$0")/.."
export GOWORK=off
controller_gen=(go tool -modfile=go.tools.mod controller-gen)

crds=deploy/chart/files/crds
chart=deploy/chart
pages=docs/reference
protocol=api/runtime/v1alpha1
console=web/dist
source=web/src
if [ "${1:-}" = --check ]; then
  scratch=$(mktemp -d)
  trap 'rm -rf "$scratch"' EXIT
  crds=$scratch/crds
  chart=$scratch/chart
  pages=$scratch/pages
  protocol=$scratch/protocol
  console=$scratch/console
  source=$scratch/source
  mkdir -p "$crds" "$chart" "$pages" "$protocol" "$console" "$source"
fi

"${controller_gen[@]}" crd paths=./api/node/... paths=./api/nodeinfo/... paths=./api/scheduling/... paths=./api/quota/... \
  paths=./api/device/... paths=./api/reservation/... paths=./api/migration/... paths=./api/explanation/... \
  paths=./api/colocation/... paths=./api/slo/... \
  output:crd:dir="$crds"
# ElasticQuota and PodGroup are the same in their other group, which needs no approval, and where status is a
# subresource.
for kind in elasticquotas podgroups; do
  sed -e '/^  name:\|^  group:/s/scheduling\.sigs\.k8s\.io/scheduling.x-k8s.io/; /api-approved/d' \
    -e 's/^    subresources: {}$/    subresources:\n      status: {}/' \
    "$crds/scheduling.sigs.k8s.io_$kind.yaml" >"$crds/scheduling.x-k8s.io_$kind.yaml"
done
go run ./hack/docgen "$pages"
go run ./hack/viewts "$source"
(cd web/vendor && sha256sum --quiet --check SUMS)
go run -modfile=go.tools.mod ./web/bundle.go "$console"
go run ./hack/chart "$chart" "$pages"
# The page of flags is written by a test, which links every program, and the manifests by one that builds Helm's program;
# the tests check them.
if [ "${1:-}" != --check ]; then
  go test -vet=off -tags "${TAGS:-nomsgpack}" ./cmd/tenon -run Flags -update
  go test -vet=off -tags "${TAGS:-nomsgpack}" ./deploy -run 'TestTheManifestsAreTheChart|TestGoldens|TestTheRightsAreOnTheirPage' -update
fi
out=$(realpath "$protocol")
(cd hack/tools/protobuf && go run . ../../.. api/runtime/v1alpha1/api.proto "$out")

if [ "${1:-}" = --check ]; then
  diff -r "$crds" deploy/chart/files/crds
  diff "$source/view.ts" web/src/view.ts
  diff -rq "$console" web/dist
  for file in "$chart"/*; do
    diff "$file" "deploy/chart/$(basename "$file")"
  done
  for file in "$protocol"/*; do
    diff "$file" "api/runtime/v1alpha1/$(basename "$file")"
  done
  for page in "$pages"/*; do
    diff "$page" "docs/reference/$(basename "$page")"
  done
  # Deep copies are written beside their types; a run must leave them as they are.
  before=$(cat $(git ls-files 'api/**/zz_generated*' 'api/*/zz_generated*') | sha256sum)
  "${controller_gen[@]}" object paths=./api/...
  after=$(cat $(git ls-files 'api/**/zz_generated*' 'api/*/zz_generated*') | sha256sum)
  [ "$before" = "$after" ] || { echo "api/**/zz_generated*.go were not current"; exit 1; }
else
  "${controller_gen[@]}" object paths=./api/...
fi
