#!/usr/bin/env bash
# Builds static binaries: build.sh FOLDER PACKAGE... Where a binary is missing, which means that Kubernetes has to be
# downloaded and compiled, it shows how far that is. VERSION is what they print as their version (default: the tag or
# commit of the checkout); GOOS and GOARCH choose a platform.
set -euo pipefail
GO=${GO:-go} TAGS=${TAGS:-nomsgpack}
folder=$1
shift
export CGO_ENABLED=0
mkdir -p "$folder"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
terminal=
[ ! -t 1 ] || terminal=yes

# progress counts the modules that Go downloads and the packages that it compiles, of a total. What names neither is an
# error, and is printed.
progress() { # TOTAL
  awk -v total="$1" -v terminal="$terminal" '
    function show(text, every, n) {
      if (terminal) { printf "\r  %s", text; shown = 1 }
      else if (n % every == 0) printf "  %s\n", text
      fflush()
    }
    /^go: downloading / { modules++; show(modules " modules downloaded", 50, modules); next }
    total && /^[a-z][^ :]*$/ { done++; show(done " of " total " packages compiled", 200, done); next }
    { if (shown) print ""; shown = 0; print }
    END { if (shown) print "" }'
}

# The linker writes into Kubernetes' own code which release it is, as a release build of Kubernetes does.
release=$("$GO" list -m -f '{{.Version}}' k8s.io/kubernetes 2> >(progress 0 >&2))
IFS=. read -r major minor _ <<<"${release#v}"
at=k8s.io/component-base/version
stamp="-X $at.gitVersion=$release -X $at.gitMajor=$major -X $at.gitMinor=$minor -X $at.gitCommit= -X $at.gitTreeState=clean"
version=${VERSION:-$(git describe --tags --always --dirty --abbrev=12 --match 'v[0-9]*' 2>/dev/null || true)}
stamp+=" -X github.com/tenon-project/tenon/api/version.release=$version"

# The page of gRPC's traces calls methods by their names, and with it the linker keeps every method of every type. These
# programs have nothing else that does (docs/reference/release.md has the sizes).
traceless=() others=()
for package in "$@"; do
  case ${package##*/} in
    tenon-agent | tenon-descheduler | tenon-manager | tenon-runtime-proxy) traceless+=("$package") ;;
    *) others+=("$package") ;;
  esac
done
build() { # TAGS PACKAGE…
  local tags=$1 package missing= total
  shift
  [ $# != 0 ] || return 0
  local command=("$GO" build -tags "$tags" -trimpath -ldflags "-s -w $stamp" -o "$folder/")
  for package in "$@"; do
    [ -x "$folder/${package##*/}" ] || missing=yes
  done
  if [ -z "$missing" ]; then
    "${command[@]}" "$@" 2>&1 | progress 0
    return
  fi
  echo "downloading modules and compiling Kubernetes: 5 to 10 minutes on 2 cores; later builds take seconds"
  "$GO" list -tags "$tags" -deps "$@" 2>&1 >"$work/packages" | progress 0
  total=$(wc -l <"$work/packages")
  # -v prints the path of each package as it is compiled.
  "${command[@]}" -v "$@" 2>&1 | progress "$total"
}
build "$TAGS" "${others[@]}"
build "$TAGS,grpcnotrace" "${traceless[@]}"
