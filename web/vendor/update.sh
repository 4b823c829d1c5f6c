#!/usr/bin/env bash
# Unpacks the packages that the pages use from the npm registry, and writes SUMS. Change a version here, run this, then
# `make generate`.
set -euo pipefail
cd "$(dirname "$0")"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

take() { # FOLDER PACKAGE VERSION FILE…: copies the files and the licence of a package
  local folder=$1 package=$2 version=$3
  shift 3
  mkdir -p "$scratch/$folder" "$folder"
  (cd "$scratch" && npm pack --silent "$package@$version" | xargs -I{} tar xzf {} -C "$folder" --strip-components 1)
  for file in "$@" LICENSE; do
    # Source maps are not kept.
    sed 's,//# sourceMappingURL=.*,,' "$scratch/$folder/$file" >"$folder/$(basename "$file")"
  done
  echo "$package $version" >"$folder/VERSION"
}

take preact preact 11.2.0 dist/preact.mjs hooks/dist/hooks.mjs jsx-runtime/dist/jsxRuntime.mjs
take signals @preact/signals 2.11.4 dist/signals.mjs
take signals-core @preact/signals-core 1.14.5 dist/signals-core.mjs
sha256sum */* >SUMS
