#!/usr/bin/env bash
# Runs rungs of the test ladder, see docs/reference/testing.md:
#
#   level.sh [--need] 2|3|4|5|6|cluster|fault|bench…        V=1 shows each case, ANEW=1 runs what has passed before
#
# What cannot run is one line, NOT RUN: level N (why), and no failure; with --need it is one, but under NODE_TESTS=if-able.
# A level that has passed with the same tools on the same tree is not run again: its last line is repeated.
set -uo pipefail
cd "$(dirname "$0")/../.."
export GOWORK=off CGO_ENABLED=0
# No program is linked anew because the commit, which it prints as its version, is another one.
export VERSION=devel
GO=${GO:-go}
TAGS=${TAGS:-nomsgpack}
cache=${TENON_CACHE:-$PWD/.cache}/node
failed=0
need=
if [ "${1:-}" = --need ]; then need=1; shift; fi
[ "${NODE_TESTS:-}" != if-able ] || need=

not_run() { # LEVEL WHY
  echo "NOT RUN: $1 ($2)"
  [ -z "$need" ] || failed=1
}

# tree names the content of the repository with what is not committed, but for the paths; nothing outside of a clone.
# Nothing is written to the clone.
tree() { # PATH…
  local own
  git rev-parse --git-dir >/dev/null 2>&1 || return 0
  own=$(mktemp -d)
  cp "$(git rev-parse --git-path index)" "$own/index" 2>/dev/null
  (
    GIT_ALTERNATE_OBJECT_DIRECTORIES=$(realpath "$(git rev-parse --git-path objects)")
    export GIT_INDEX_FILE=$own/index GIT_OBJECT_DIRECTORY=$own/objects GIT_ALTERNATE_OBJECT_DIRECTORIES
    mkdir "$own/objects" && git add -A && git rm -rq --cached --ignore-unmatch -- "$@" && git write-tree
  ) 2>/dev/null
  rm -rf "$own"
}

# why_not says why namespaces and cgroups cannot be made here; nothing where they can.
why_not() {
  [ "$(uname -s)" = Linux ] || { echo "Linux is needed"; return; }
  [ "$(id -u)" = 0 ] || { echo "root is needed"; return; }
  unshare --net --mount --pid --fork true 2>/dev/null || { echo "namespaces cannot be made here"; return; }
  local try=/sys/fs/cgroup/tenon-e2e-try-$$
  [ ! -d /sys/fs/cgroup/cpuset ] || try=/sys/fs/cgroup/cpuset/tenon-e2e-try-$$
  mkdir "$try" 2>/dev/null && rmdir "$try" || echo "cgroups cannot be made here"
}

# begin LEVEL TAG PACKAGE LIMIT FLAG…: compiles the tests of a package and begins to run them, once per tools and tree.
# Most of the time a level waits: for a kubelet that looks once a second, for containers that end. Two run beside each other.
jobs=() broken=()
begin() {
  local level=$1 tag=$2 package=$3 limit=$4 stamp out bin=
  shift 4
  stamp=
  [ -z "$tree" ] || stamp=$cache/passed/${level// /-}-$(basename "${dir:-none}")-$tree
  if [ -n "$stamp" ] && [ -e "$stamp" ] && [ -z "${ANEW:-}" ]; then
    echo "$level: passed before with the same tools and tree"
    cat "$stamp"
    return
  fi
  mkdir -p "$cache/passed" "$cache/test"
  out=${package#test/e2e/}
  out=$cache/test/${out//\//-}.test
  bash hack/elapsed.sh "compiling $level" $GO test -c -tags "$TAGS $tag" -ldflags '-s -w' -o "$out" "./$package" ||
    { failed=1; return; }
  case $tag in
  e2e_node | e2e_cluster) build_programs && bin=$cache/bin || { failed=1; return; } ;;
  e2e_guest) bin=$cache/bin ;;
  esac
  [ ${#jobs[@]} -lt 2 ] || finish
  (
    cd "$package" && export TENON_NODE_TOOLS=${dir:-} ${bin:+"TENON_NODE_BIN=$bin" "TENON_BIN=$bin/tenon"}
    exec "$out" -test.timeout "$limit" -test.failfast=false ${V:+-test.v} "$@" >"$out.log" 2>&1
  ) &
  jobs+=("$!"$'\t'"$out"$'\t'"${stamp:--}"$'\t'"$level"$'\t'"$(date +%s)")
}

# finish shows what the level that began first prints until it ends, and notes that it has passed. On a terminal it shows
# for how long the level has run, too: a line of output takes the place of that.
finish() {
  local pid out stamp level begun shown code=0
  IFS=$'\t' read -r pid out stamp level begun <<<"${jobs[0]}"
  jobs=("${jobs[@]:1}")
  bash hack/elapsed.sh "$level" "$pid" &
  shown=$!
  tail -n +1 -f --pid="$pid" "$out.log" | { if [ -t 1 ]; then sed -u $'s/^/\r\033[K/'; else cat; fi; }
  wait "$pid" || code=$?
  wait "$shown"
  if [ "$code" != 0 ]; then
    echo "$level: FAILED (its output is in ${out#"$PWD"/}.log)"
    failed=1 broken+=("$out.log")
    return
  fi
  echo "$level: $(($(stat -c %Y "$out.log") - begun)) s"
  if grep -q '^NOT RUN' "$out.log"; then
    [ -z "$need" ] || failed=1
    return
  fi
  rm -f "$cache/passed/${level// /-}"-*
  [ "$stamp" = - ] || grep -E '^(level [0-9]|faults):' "$out.log" >"$stamp"
}
# Ctrl-C does not reach what runs in the background.
trap 'kill $(jobs -p) 2>/dev/null; wait; exit 130' INT TERM

# bench prints figures, each time anew; of the measurements whose names match RUN, if it is set.
bench() {
  mkdir -p "$cache/test"
  $GO test -c -tags "$TAGS e2e_node" -o "$cache/test/bench.test" ./test/bench/agent || { failed=1; return; }
  (cd test/bench/agent && TENON_NODE_TOOLS=$dir "$cache/test/bench.test" -test.v -test.timeout 30m ${RUN:+-test.run "$RUN"}) || failed=1
}

# build_programs makes what levels 3 to 5 and the faults run of Tenon, beside the tools: nothing is linked anew that is current.
build_programs() {
  mkdir -p "$cache/bin"
  GO="$GO" TAGS="$TAGS" bash hack/build.sh "$cache/bin" ./cmd/tenon-agent ./cmd/tenon-runtime-proxy ./cmd/tenon
}

# build_for_guests makes what is brought into guests that run already.
build_for_guests() {
  build_programs &&
    $GO test -c -tags "$TAGS e2e_cgroup" -trimpath -ldflags '-s -w' -o "$cache/bin/cgroup.test" ./test/e2e/node/cgroup
}

all=$(tree none) programs=$(tree docs '*.md' test/bench/results)
dir=
for level in "$@"; do
  # Level 6 runs commands of the pages.
  case $level in
  6 | cluster) tree=$all ;;
  *) tree=$programs ;;
  esac
  case $level in
  2) ;;
  *)
    if ! dir=$(bash hack/node/build.sh --dir); then
      not_run "level $level" "make node-tools"
      continue
    fi
    ;;
  esac
  if [ "$level" != 5 ]; then
    why=$(why_not)
    if [ -n "$why" ]; then
      not_run "level $level" "$why"
      continue
    fi
  fi
  case $level in
  2) begin "level 2" e2e_cgroup test/e2e/node/cgroup 10m ;;
  3) begin "level 3" e2e_node test/e2e/node/runtime 45m ;;
  4) begin "level 4" e2e_cluster test/e2e/node/cluster 45m ;;
  5)
    build_for_guests || { failed=1; continue; }
    begin "level 5" e2e_guest test/e2e/node/guest 60m ;;
  6) begin "level 6" e2e_install test/e2e/cluster 15m -test.short ;;
  cluster) begin "whole level 6" e2e_install test/e2e/cluster 40m ;;
  bench) bench ;;
  fault) begin "faults" e2e_node test/e2e/node/fault 20m ;;
  *) echo "level.sh: unknown level $level: want 2 to 6, cluster, fault or bench" >&2; exit 2 ;;
  esac
done
while [ ${#jobs[@]} != 0 ]; do finish; done
[ ${#broken[@]} = 0 ] || { mkdir -p bin && bash hack/failed.sh "${broken[@]}" | tee -a bin/failed.log; }
exit $failed
