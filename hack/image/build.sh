#!/usr/bin/env bash
# Packs the agent into an image without a container engine: one static program in one layer, as a Docker archive that
# every runtime imports and every registry tool pushes. Equal sources give equal bytes.
#
#   build.sh [FILE]   writes FILE (default bin/tenon-agent-ARCH.tar)
#   build.sh --name   prints the image's name
#
# TAG (default devel) is the image's tag, ARCH (default this machine's) its architecture.
set -euo pipefail
cd "$(dirname "$0")/../.."
export GOWORK=off GOFLAGS=-buildvcs=false CGO_ENABLED=0
GO=${GO:-go}
arch=${ARCH:-$($GO env GOARCH)}
name=localhost/tenon-agent:${TAG:-devel}

if [ "${1:-}" = --name ]; then
  echo "$name"
  exit
fi
file=${1:-bin/tenon-agent-$arch.tar}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
GOOS=linux GOARCH=$arch $GO build -tags nomsgpack -trimpath -ldflags '-s -w' -o "$work/tenon-agent" ./cmd/tenon-agent
mkdir -p "$(dirname "$file")"
$GO run ./hack/node/pack -o "$file" -arch "$arch" "$name=$work/tenon-agent"
echo "$file: $name, $arch, $(du -h "$file" | cut -f1), sha256 $(sha256sum "$file" | cut -d' ' -f1)"
