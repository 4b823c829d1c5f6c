#!/usr/bin/env bash
# Checks that need no test run: format, vet, lint, module graph, generated files, licences, vulnerabilities.
# Prints one line per check; ends with 1 when one failed.
set -uo pipefail
cd "$(dirname "$0")/.."
export GOWORK=off
TOOL=${TOOL:-"go tool -modfile=go.tools.mod"}
TAGS=${TAGS:-nomsgpack}
# Tests of the ladder are behind tags of their own.
all="$TAGS,e2e_cgroup,e2e_node,e2e_cluster,e2e_guest,e2e_install"
failed=0
# Hits that are accepted today, of CONTRIBUTING.md's rules on words, names, lines and patterns: lower them with every pass over the texts.
most_words=0
most_names=0
most_lines=36
most_patterns=0

check() { # NAME COMMAND…: passes when the command succeeds; its output is shown when it does not
  local name=$1 out
  shift
  if out=$("$@" 2>&1); then
    echo "ok    $name"
  else
    echo "FAIL  $name"
    printf '%s\n' "$out" | tail -n 40 | sed 's/^/      /'
    failed=1
  fi
}

limit() { # NAME CHECK MOST: passes when hack/text counts at most so many hits; its count by folder is shown when not
  local out
  if out=$(go run ./hack/text "$2" -most "$3" 2>&1); then
    echo "ok    $1: $(printf '%s\n' "$out" | awk 'END { print $1 }') hits, at most $3"
  else
    echo "FAIL  $1 (go run ./hack/text $2 -v shows each hit)"
    printf '%s\n' "$out" | sed 's/^/      /'
    failed=1
  fi
}

empty() { # succeeds when the command succeeds and prints nothing
  local out
  out=$("$@") || { printf '%s\n' "$out"; return 1; }
  [ -z "$out" ] || { printf '%s\n' "$out"; return 1; }
}

no_replace() { ! grep -nE '^(replace|exclude)' go.mod; }
graph_loads() { go list -m all >/dev/null; }
strays() { go list -m all | awk '$1 ~ /^k8s\.io\// && $2 ~ /^v0\.[1-9]/ && $2 != "v0.37.2"'; }
controller_runtime() { [ "$(go list -m -f '{{.Version}}' sigs.k8s.io/controller-runtime)" = v0.25.2 ]; }
nested_tidy() {
  local mod
  for mod in $(git ls-files '*/go.mod'); do
    (cd "$(dirname "$mod")" && go mod tidy -diff) || return 1
  done
}
generated() { # what the generators write equals what is committed
  bash hack/generate.sh --check
}
static_binaries() {
  local b
  for b in bin/*; do
    [ -f "$b" ] || continue
    if readelf -l "$b" 2>/dev/null | grep -q INTERP; then
      echo "$b needs a dynamic loader"
      return 1
    fi
  done
}

nvml() { # the part of the agent that needs cgo, with NVIDIA's mock of its library
  CGO_ENABLED=1 go vet -tags "$TAGS,nvml,hw" ./internal/agent/inventory ./cmd/tenon-agent &&
    CGO_ENABLED=1 go test -tags "$TAGS,nvml" ./internal/agent/inventory
}

if [ "${1:-}" = nested_tidy ]; then
  nested_tidy
  exit
fi
check "gofumpt"                      empty $TOOL gofumpt -l api cmd deploy hack internal test web
limit "words"                        words "$most_words"
limit "names"                        names "$most_names"
limit "lines"                        lines "$most_lines"
limit "patterns"                     patterns "$most_patterns"
check "go vet"                       go vet -tags "$all" ./...
check "golangci-lint"                bash hack/once.sh lint '*.go' '*go.mod' '*go.sum' 'go.tools.*' .golangci.yaml -- $TOOL golangci-lint run --allow-parallel-runners --build-tags "$all"
check "go mod tidy"                  empty go mod tidy -diff
check "no replace, no exclude"       no_replace
check "module graph loads"           graph_loads
check "all of k8s.io at v0.37.2"     empty strays
check "controller-runtime v0.25.2"   controller_runtime
check "go mod verify"                go mod verify
check "nested modules are tidy"      bash hack/once.sh tidy '*go.mod' '*go.sum' '*.go' hack/verify.sh -- bash hack/verify.sh nested_tidy
check "generated files are current"  generated
check "licences"                     go run ./hack/licence
check "static binaries"              static_binaries
if command -v "${CC:-gcc}" >/dev/null; then
  check "tag nvml"                   nvml
else
  echo "tag nvml: NOT RUN (no C compiler)"
fi

# The vulnerability database is a service: where it cannot be reached nothing was checked, and that is what is said.
# With its version it prints how old the database is: otherwise all programs would be analysed before it is asked for.
code=1
if ! vuln=$($TOOL govulncheck -version 2>&1); then
  : # it cannot be built
elif ! grep -q '^DB updated' <<<"$vuln"; then
  vuln="fetching vulnerabilities: $vuln"
elif vuln=$($TOOL govulncheck -tags "$TAGS" ./cmd/... 2>&1); then
  code=0
fi
if [ $code = 0 ]; then
  echo "ok    govulncheck"
elif printf '%s' "$vuln" | grep -qiE 'dial tcp|no such host|connection refused|timeout|fetching vulnerabilities|Forbidden|403|502|503|lookup'; then
  echo "govulncheck: NOT RUN (database unreachable)"
else
  echo "FAIL  govulncheck"
  printf '%s\n' "$vuln" | tail -n 40 | sed 's/^/      /'
  failed=1
fi
exit $failed
