#!/usr/bin/env bash
# Makes what the guests of levels 5 and 6 boot: guest.sh BIN CNI IMAGES OUT
#
#   BIN     folder with containerd, containerd-shim-runc-v2, ctr, runc and kubelet
#   CNI     folder with the plugins bridge, host-local, loopback
#   IMAGES  docker archive with localhost/pause:1 and localhost/probe:1
#   OUT     folder to make: vmlinuz, initrd, root.ext4, kernel (the package's version)
#
# A guest boots busybox's init, or systemd where its kernel's command line has "systemd".
#
# guest.sh --key prints what of the result does not come from the repository: the resolved versions of Debian's packages.
# No root is needed and nothing is installed: packages are unpacked, file systems are written from folders.
set -euo pipefail

meta=linux-image-6.12-cloud-amd64
# systemd and the libraries that it and systemctl load. Without dbus: root speaks to systemd's own socket.
systemd="systemd libsystemd-shared libacl1 libapparmor1 libaudit1 libblkid1 libc6 libcap-ng0 libcap2 libcrypt1 libgcrypt20
 libgpg-error0 libip4tc2 libkmod2 liblz4-1 liblzma5 libmount1 libpam0g libpcre2-8-0 libseccomp2 libselinux1 libssl3 libzstd1"

# resolve prints "PACKAGE VERSION" of the kernel image that the meta package resolves to today.
resolve() {
  local found
  found=$(apt-cache show "$meta" 2>/dev/null | sed -n 's/^Depends: \(linux-image-[^ ,]*\) (= \([^)]*\)).*/\1 \2/p' | head -1)
  if [ -z "$found" ]; then
    echo "guest.sh: no candidate for $meta: run apt-get update, with the suite bookworm-security enabled" >&2
    return 1
  fi
  echo "$found"
}

if [ "${1:-}" = --key ]; then
  resolve
  dpkg-query -W -f '${Package} ${Version}\n' busybox-static qemu-system-x86 | sort
  # shellcheck disable=SC2086 # a list of words
  apt-cache policy $systemd | grep -E '^[a-z]|Candidate'
  exit
fi
[ $# = 4 ] || { echo "usage: guest.sh BIN CNI IMAGES OUT | guest.sh --key" >&2; exit 2; }
bin=$(realpath "$1") cni=$(realpath "$2") images=$(realpath "$3") out=$(realpath -m "$4")
here=$(cd "$(dirname "$0")/../.." && pwd)
for tool in busybox cpio depmod modprobe mke2fs xz dpkg-deb; do
  PATH=$PATH:/usr/sbin:/sbin command -v "$tool" >/dev/null || { echo "guest.sh: $tool is missing" >&2; exit 1; }
done
PATH=$PATH:/usr/sbin:/sbin
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$out"

read -r package version < <(resolve)
release=${package#linux-image-}
echo "kernel $package $version"
(cd "$work" && apt-get download -qq -o APT::Sandbox::User=root "$package=$version")
dpkg-deb -x "$work"/linux-image-*.deb "$work/kernel"
cp "$work/kernel/boot/vmlinuz-$release" "$out/vmlinuz"
depmod -b "$work/kernel" "$release"

# modules FOLDER NAME… unpacks modules with all that they need below FOLDER and prints the paths there in the order of loading.
modules() {
  local folder=$1 name
  shift
  for name in "$@"; do
    modprobe -d "$work/kernel" -S "$release" --show-depends "$name"
  done | awk '$1 == "insmod" && !seen[$2]++ {print $2}' | while read -r path; do
    name=$(basename "${path%.xz}")
    mkdir -p "$folder/lib/modules"
    case $path in *.xz) xz -dc "$path" ;; *) cat "$path" ;; esac >"$folder/lib/modules/$name"
    echo "/lib/modules/$name"
  done
}

# The first root: just enough to reach the disk.
first=$work/first
mkdir -p "$first"/{bin,dev,proc,sys,disk}
cp "$(command -v busybox)" "$first/bin/busybox"
{
  echo '#!/bin/busybox sh'
  echo '/bin/busybox mount -t devtmpfs dev /dev'
  modules "$first" virtio_blk | sed 's|^|/bin/busybox insmod |'
  echo '/bin/busybox mount -t ext4 /dev/vda /disk'
  echo '/bin/busybox mount --move /dev /disk/dev'
  echo '/bin/busybox mount -t proc proc /proc'
  echo 'init=/sbin/init'
  echo 'if /bin/busybox grep -qw systemd /proc/cmdline; then init=/lib/systemd/systemd; fi'
  echo '/bin/busybox umount /proc'
  echo 'exec /bin/busybox switch_root /disk $init'
} >"$first/init"
chmod 755 "$first/init"
(cd "$first" && find . | LC_ALL=C sort | cpio -o -H newc --quiet -R 0:0 | gzip -9n) >"$out/initrd"

# The root of the guest.
root=$work/root
mkdir -p "$root"/{bin,sbin,dev,proc,sys,run,tmp,root,var/log,var/lib,opt/cni/bin,opt/tenon,usr/bin,usr/sbin,lib/modules}
# shellcheck disable=SC2086 # a list of words
(mkdir "$work/debs" && cd "$work/debs" && apt-get download -qq -o APT::Sandbox::User=root $systemd)
for deb in "$work"/debs/*.deb; do
  dpkg-deb -x "$deb" "$work/systemd"
done
rm -r "$work"/systemd/usr/share "$work"/systemd/etc "$work"/systemd/var "$work"/systemd/lib/systemd/system
mv "$work"/systemd/bin/systemctl "$root/bin/"
rm -rf "$work"/systemd/{bin,sbin,usr/bin,usr/sbin}
cp -a "$work/systemd/." "$root/"
cp -r "$here/test/e2e/node/guest/root/." "$root/"
cp "$(command -v busybox)" "$root/bin/busybox"
"$root/bin/busybox" --list | while read -r applet; do
  [ "$applet" = busybox ] || ln -sf busybox "$root/bin/$applet"
done
ln -sf ../bin/busybox "$root/sbin/init"
cp "$bin"/{containerd,containerd-shim-runc-v2,ctr,runc,kubelet} "$root/bin/"
cp "$cni"/{bridge,host-local,loopback} "$root/opt/cni/bin/"
cp "$images" "$root/images.tar"
ln -s opt/cni/bin "$root/cni"
ln -s ../run "$root/var/run"
(cd "$here" && CGO_ENABLED=0 GOWORK=off "${GO:-go}" build -trimpath -buildvcs=false -ldflags '-s -w' -o "$root/bin/inside" ./test/e2e/node/guest/inside)
modules "$root" overlay virtio_net veth bridge br_netfilter >"$root/etc/modules"
used=$(du -sm "$root" | cut -f1)
rm -f "$out/root.ext4"
mke2fs -q -t ext4 -O ^has_journal -E root_owner=0:0,lazy_itable_init=1 -m 0 -d "$root" "$out/root.ext4" "$((used + 1000))M"
echo "$version" >"$out/kernel"
