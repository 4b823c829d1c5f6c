#!/usr/bin/env bash
# Runs a command unless it has passed before on the same inputs, with the same Go:
#
#   once.sh NAME INPUT… -- COMMAND…
#
# An input is a file or folder of this repository, as git names it; a command is what decides by its inputs alone.
# TENON_CACHE is where what has passed is noted (default .cache); ANEW=1 runs the command in any case.
set -euo pipefail
cd "$(dirname "$0")/.."
name=$1 inputs=()
shift
while [ "$1" != -- ]; do
  inputs+=("$1")
  shift
done
shift

# contents prints the hash of each input with its name; nothing where git does not know them.
contents() {
  git ls-files -coz --exclude-standard -- "${inputs[@]}" | LC_ALL=C sort -zu | xargs -0 -r sha256sum 2>&1
}

known=$(contents) || known=
passed=${TENON_CACHE:-$PWD/.cache}/passed
stamp=$passed/$name-$({ ${GO:-go} version && printf '%s\n' "$*" "$known"; } | sha256sum | cut -c1-24)
if [ -n "$known" ] && [ -z "${ANEW:-}" ] && [ -e "$stamp" ]; then
  echo "$name: passed before with the same inputs"
  exit
fi
printf '%s\n' "$*"
"$@"
[ -z "$known" ] || { mkdir -p "$passed" && find "$passed" -name "$name-*" -mtime +30 -delete && touch "$stamp"; }
