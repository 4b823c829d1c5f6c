#!/usr/bin/env bash
# Builds static binaries: build.sh FOLDER PACKAGE... Where a binary is missing, which means that Kubernetes has to be
# compiled, it shows how many packages are done of all. VERSION is what they print as their version (default: the tag or
# commit of the checkout); GOOS and GOARCH choose a platform.
set -euo pipefail
GO=${GO:-go} TAGS=${TAGS:-nomsgpack}
folder=$1
shift
export CGO_ENABLED=0
mkdir -p "$folder"
# The linker writes into Kubernetes' own code which release it is, as a release build of Kubernetes does.
release=$("$GO" list -m -f '{{.Version}}' k8s.io/kubernetes)
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
  local tags=$1 package missing= total terminal=
  shift
  [ $# != 0 ] || return 0
  local command=("$GO" build -tags "$tags" -trimpath -ldflags "-s -w $stamp" -o "$folder/")
  for package in "$@"; do
    [ -x "$folder/${package##*/}" ] || missing=yes
  done
  if [ -z "$missing" ]; then
    "${command[@]}" "$@"
    return
  fi
  total=$("$GO" list -tags "$tags" -deps "$@" | wc -l)
  echo "compiling $total packages, most of them of Kubernetes: 5 to 10 minutes on 2 cores; later builds take seconds"
  [ ! -t 1 ] || terminal=yes
  # -v prints the path of each package as it is compiled. What is not a path is an error of the compiler.
  "${command[@]}" -v "$@" 2>&1 | awk -v total="$total" -v terminal="$terminal" '
    !/^[a-z][^ :]*$/ { print; next }
    { done++ }
    terminal { printf "\r  %d of %d packages", done, total; fflush() }
    !terminal && done % 200 == 0 { printf "  %d of %d packages\n", done, total; fflush() }
    END { if (terminal && done) print "" }'
}
build "$TAGS" "${others[@]}"
build "$TAGS,grpcnotrace" "${traceless[@]}"
