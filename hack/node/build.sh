#!/usr/bin/env bash
# Builds the foreign programs that tests of the agent on a node need, from module proxy and Debian packages:
#
#   build.sh         containerd, runc, CNI plugins, kubelet and the test images: levels 3 and 4
#   build.sh guest   these, and what the guests of levels 5 and 6 boot
#   build.sh --dir   prints the folder of the tools, and ends with 1 where they are not built
#
# The result is .cache/node/KEY/{bin,containerd-1.7,cni,images.tar,guest}: built beside and renamed, so that it is whole or not there.
# KEY is a hash of everything that the programs are built from; .cache/node/current leads to the last one built. TENON_CACHE
# is another folder than .cache.
set -euo pipefail
cd "$(dirname "$0")/../.."
export GOWORK=off GOFLAGS=-buildvcs=false
GO=${GO:-go}
cache=${TENON_CACHE:-$PWD/.cache}/node

packages="gcc libc6-dev pkg-config libseccomp-dev iptables"
guest_packages="qemu-system-x86 qemu-utils busybox-static cpio kmod e2fsprogs xz-utils numactl hwloc-nox"
# One line a program: nested module, cgo, build tags, linker flags, packages of the module.
containerd=github.com/containerd/containerd/v2/cmd
old=github.com/containerd/containerd/cmd
plugins=github.com/containernetworking/plugins/plugins
version=k8s.io/component-base/version
programs="
runc       1 seccomp,netgo,osusergo  -extldflags=-static  bin github.com/opencontainers/runc
containerd 0 no_btrfs,no_zfs,no_devmapper,netgo,osusergo,static_build - bin $containerd/containerd $containerd/containerd-shim-runc-v2 $containerd/ctr
containerd17 0 no_btrfs,no_zfs,no_devmapper,no_aufs,netgo,osusergo,static_build - containerd-1.7 $old/containerd $old/containerd-shim-runc-v2 $old/ctr
cni        0 - - cni $plugins/main/bridge $plugins/main/loopback $plugins/main/ptp $plugins/ipam/host-local $plugins/meta/portmap
kubelet    0 - -X=$version.gitVersion=v1.37.2,-X=$version.gitMajor=1,-X=$version.gitMinor=37 bin k8s.io/kubernetes/cmd/kubelet
"

missing() { # PACKAGE…: prints those that are not installed
  local p
  for p in "$@"; do
    dpkg-query -W -f '${Status}' "$p" 2>/dev/null | grep -q '^install ok installed' || echo "$p"
  done
}

install() { # PACKAGE…
  local absent
  command -v dpkg-query >/dev/null 2>&1 || return 0 # whoever is not on Debian sees what the compiler misses
  absent=$(missing "$@")
  # shellcheck disable=SC2086 # a list of words
  [ -z "$absent" ] || bash hack/packages.sh $absent
}

key() {
  {
    $GO version
    echo "$programs"
    dpkg-query -W -f '${Package} ${Version}\n' gcc libc6-dev libseccomp-dev 2>/dev/null || true
    for name in runc containerd containerd17 cni kubelet; do
      sha256sum "hack/tools/$name/go.mod" "hack/tools/$name/go.sum"
    done
    sha256sum hack/node/pack/*.go test/e2e/node/image/*/*.go
  } | sha256sum | cut -c1-16
}

build_programs() { # OUT
  local name cgo tags ld folder targets
  echo "$programs" | while read -r name cgo tags ld folder targets; do
    [ -n "$name" ] || continue
    echo "  $name"
    [ "$tags" != - ] || tags=
    [ "$ld" != - ] || ld=
    ld=${ld//,/ }
    mkdir -p "$1/$folder"
    # shellcheck disable=SC2086 # a list of packages
    (cd "hack/tools/$name" && CGO_ENABLED=$cgo bash ../../elapsed.sh "building $name" $GO build -trimpath -tags "$tags" -ldflags "-s -w $ld" -o "$1/$folder/" $targets)
  done
}

build_images() { # OUT
  local work
  work=$(mktemp -d)
  for name in pause probe; do
    CGO_ENABLED=0 $GO build -trimpath -ldflags '-s -w' -o "$work/$name" "./test/e2e/node/image/$name"
  done
  $GO run ./hack/node/pack -o "$1/images.tar" -arch "$($GO env GOARCH)" "localhost/pause:1=$work/pause" "localhost/probe:1=$work/probe"
  rm -rf "$work"
}

build_guest() { # DIR
  local want
  # shellcheck disable=SC2086 # a list of words
  install $guest_packages
  want=$({ sha256sum hack/node/guest.sh; find test/e2e/node/guest/{inside,root,wire} -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum; bash hack/node/guest.sh --key; } | sha256sum | cut -c1-16)
  [ "$(cat "$1/guest/key" 2>/dev/null)" != "$want" ] || return 0
  echo "building the guests' disk"
  rm -rf "$1/guest.new"
  bash hack/node/guest.sh "$1/bin" "$1/cni" "$1/images.tar" "$1/guest.new"
  echo "$want" >"$1/guest.new/key"
  rm -rf "$1/guest"
  mv "$1/guest.new" "$1/guest"
}

dir=$cache/$(key)
if [ "${1:-}" = --dir ]; then
  echo "$dir"
  [ -e "$dir/images.tar" ]
  exit
fi
mkdir -p "$cache"
exec 9>"$cache/lock"
flock 9
# shellcheck disable=SC2086 # a list of words
if ! install $packages; then
  [ "${NODE_TESTS:-}" = if-able ] || exit 1
  echo "NOT RUN: make node-tools (packages cannot be installed here)"
  exit 0
fi
dir=$cache/$(key) # packages are part of it
if [ ! -e "$dir/images.tar" ]; then
  echo "building containerd, runc, CNI plugins and the kubelet (the first time about 20 CPU-minutes)"
  new=$(mktemp -d "$cache/new.XXXXXX")
  trap 'rm -rf "$new"' EXIT
  build_programs "$new"
  build_images "$new"
  chmod 755 "$new"
  mv "$new" "$dir"
  find "$cache" -maxdepth 1 -type d -name '????????????????' ! -path "$dir" -mtime +30 -exec rm -rf {} +
fi
ln -sfn "$(basename "$dir")" "$cache/current"
if [ "${1:-}" = guest ]; then
  build_guest "$dir"
fi
echo "tools of the node: ${dir#"$PWD"/}"
