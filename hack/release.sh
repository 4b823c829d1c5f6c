#!/usr/bin/env bash
# Builds what a release consists of. Equal sources give equal bytes.
#
#   release.sh images          bin/images/PROGRAM.tar: OCI images of Linux' architectures, which every runtime imports
#   release.sh archives        bin/release: archives, SPDX documents, the chart, Krew's manifest, checksums.txt
#   release.sh push            pushes bin/images and the chart to REGISTRY, and prints the command that installs them
#   release.sh name PROGRAM    prints the name of a program's image
#
# PROGRAMS and PLATFORMS (such as linux/arm64) choose a part, OUT another folder for it; VERSION (default: tag or
# commit), REGISTRY (localhost) and TAG (VERSION if it is that of a release, else devel) name it. REPOSITORY is the URL
# of the repository whose releases have the archives. SIGNING_KEY, the file of a private key, signs checksums and
# images. Outside a checkout, VERSION and SOURCE_DATE_EPOCH, the time of the commit, are needed.
set -euo pipefail
cd "$(dirname "$0")/.."
VERSION=${VERSION:-$(git describe --tags --always --dirty --abbrev=12 --match 'v[0-9]*' 2>/dev/null || true)}
GO=${GO:-go} registry=${REGISTRY:-localhost} tag=devel
[[ ! $VERSION =~ ^v[0-9]+\.[0-9]+\.[0-9]+(-(alpha|beta|rc)\.?[0-9]+)?$ ]] || tag=$VERSION
tag=${TAG:-$tag}
case ${1:-} in
  name)
    echo "$registry/${2:?program}:$tag"
    exit
    ;;
  images) out=${OUT:-$PWD/bin/images} platforms="linux/amd64 linux/arm64" ;;
  archives) out=${OUT:-$PWD/bin/release} platforms="linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64" ;;
  push)
    out=${OUT:-$PWD/bin/images} platforms=
    [ "$registry" != localhost ] || { echo "REGISTRY is needed: a registry with its folder, such as registry.example.com/tenon" >&2; exit 2; }
    ;;
  *)
    sed -n '2,13s/^# \?//p' "$0" >&2
    exit 2
    ;;
esac
export GOWORK=off CGO_ENABLED=0 GOFLAGS="${GOFLAGS:-} -buildvcs=false"
export VERSION=${VERSION:?is not set, and this is not a checkout of git}
revision=$(git rev-parse HEAD 2>/dev/null || true)
time=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$GO" build -o "$work/licence" ./hack/licence
"$GO" -C hack/tools/release build -o "$work/release" .
# A key that cannot sign is known before anything is built.
[ -z "${SIGNING_KEY:-}" ] || "$work/release" -key "$SIGNING_KEY" key

build() { # OS ARCH PROGRAM…
  local folder=$work/$1_$2 goos=$1 exe= program packages=()
  export GOOS=$1 GOARCH=$2
  shift 2
  [ "$goos" != windows ] || exe=.exe
  mkdir -p "$folder/bin"
  for program in "$@"; do
    if [ "$program" = kubectl-tenon ]; then
      TAGS=nomsgpack,nolocal bash hack/build.sh "$work/nolocal" ./cmd/tenon
      mv "$work/nolocal/tenon$exe" "$folder/bin/$program$exe"
    else
      packages+=("./cmd/$program")
    fi
  done
  [ ${#packages[@]} = 0 ] || bash hack/build.sh "$folder/bin" "${packages[@]}"
  # The other programs are for nodes and control planes, which run Linux.
  if [ "$goos" = linux ]; then
    "$work/licence" -out "$folder"
  else
    "$work/licence" -tags nomsgpack,nolocal -out "$folder" ./cmd/tenon
  fi
}

# sizes prints those of a platform's programs, and fails where one is larger than docs/reference/release.md promises.
sizes() { # OS_ARCH
  (cd "$work/$1/bin" && stat -c '%s %n' -- *) | awk -v platform="$1" '
    { size[$2] = $1 / 1e6; printf "%-20s %-14s %6.1f MB\n", $2, platform, size[$2] }
    END {
      if (size["tenon-agent"] > 45) bad = "tenon-agent: more than 45 MB"
      if (size["tenon-scheduler"] && size["kubectl-tenon"] > size["tenon-scheduler"] + 12)
        bad = "kubectl-tenon: more than tenon-scheduler and 12 MB"
      if (bad) { print bad; exit 1 }
    }'
}

# chart packs the chart into a folder with Helm's own program, and once more without the times of the files. The version
# of its application is the tag of the images.
chart() { # FOLDER
  [ -f deploy/chart/Chart.yaml ] && [ -f hack/tools/helm/go.mod ] || return 0
  local version=${VERSION#v}
  [[ $version =~ ^[0-9]+\.[0-9]+\.[0-9]+ ]] || version=0.0.0-g$version # Helm requires a semantic version
  "$GO" -C hack/tools/helm tool helm package --version "$version" --app-version "$tag" -d "$work/packed" "$PWD/deploy/chart"
  mkdir "$work/chart"
  tar -C "$work/chart" -xzf "$work"/packed/*.tgz
  (cd "$work/chart" && tar --sort=name --mtime="@$time" --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX \
    --format=ustar -cf - *) | gzip -n9 >"$1/$(basename "$work"/packed/*.tgz)"
}

pack=("$work/release" -in "$work" -out "$out" -version "$VERSION" -revision "$revision" -time "$time"
  -registry "$registry" -tag "$tag" -repository "${REPOSITORY:-https://github.com/tenon-project/tenon}"
  -key "${SIGNING_KEY:-}")
if [ "$1" = push ]; then
  mkdir "$work/pushed"
  chart "$work/pushed"
  # Helm speaks HTTP to a registry of this machine, as the images' library does.
  plain=()
  [[ ! $registry =~ ^(localhost|127\.0\.0\.1)[:/] ]] || plain=(--plain-http)
  "$GO" -C hack/tools/helm tool helm push "${plain[@]}" "$work"/pushed/*.tgz "oci://$registry/charts"
  version=$(basename "$work"/pushed/*.tgz .tgz)
  "${pack[@]}" -chart "oci://$registry/charts/tenon --version ${version#tenon-}" push
  exit
fi

for platform in ${PLATFORMS:-$platforms}; do
  programs="tenon-scheduler tenon-manager tenon-descheduler tenon-agent tenon-runtime-proxy kubectl-tenon"
  [ "$1" = images ] || programs+=" tenon"
  [ "${platform%/*}" = linux ] || programs=kubectl-tenon
  wanted=()
  for program in ${PROGRAMS:-$programs}; do
    [[ " $programs " != *" $program "* ]] || wanted+=("$program")
  done
  if [ ${#wanted[@]} != 0 ]; then
    build "${platform%/*}" "${platform#*/}" "${wanted[@]}"
    sizes "${platform/\//_}"
  fi
done
unset GOOS GOARCH

rm -rf "$out"
mkdir -p "$out"
"${pack[@]}" "$1"
if [ "$1" = archives ]; then
  chart "$out"
  [ -z "$(ls "$out" | grep ^kubectl-tenon)" ] || "${pack[@]}" krew
  "${pack[@]}" checksums
  [ -z "${SIGNING_KEY:-}" ] || "${pack[@]}" sign
fi
for file in "$out"/*; do
  echo "${file#"$PWD"/}: $(du -h "$file" | cut -f1), sha256 $(sha256sum "$file" | cut -d' ' -f1)"
done
