#!/usr/bin/env bash
# Installs Debian packages by name: packages.sh NAME…
set -euo pipefail
if ! command -v apt-get >/dev/null 2>&1; then
  echo "missing: $*. Install them with your system's package manager and run this again." >&2
  exit 1
fi
sudo=""
[ "$(id -u)" = 0 ] || sudo="sudo"
$sudo apt-get update -qq
DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq --no-install-recommends "$@"
