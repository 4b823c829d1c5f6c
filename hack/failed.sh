#!/usr/bin/env bash
# Prints what the tests that failed have written, from logs of go test -v: of some thousand lines a reader needs these.
#
#   failed.sh LOG…
set -euo pipefail
for log in "$@"; do
  [ -e "$log" ] || continue
  awk -v log_name="${log##*/}" '
    /^=== (RUN|PAUSE|CONT|NAME) / { test = $3; next }
    /^ *--- (PASS|SKIP): / { next }
    # The line that ends a test stands behind its name, and a subtest ends beneath its parent.
    /^ *--- FAIL: / { failed[++failures] = $3; end[$3] = $0; test = $3; next }
    /^(FAIL|ok|PASS|panic:|NOT RUN|level |faults:)/ { if (/^(FAIL|panic:)/) rest = rest $0 "\n"; if (!/^panic:/) { test = ""; next } }
    { if (test != "") wrote[test] = wrote[test] $0 "\n" }
    END {
      if (failures == 0 && rest == "") exit
      print "what failed in " log_name ":"
      for (i = 1; i <= failures; i++) printf "%s\n%s", end[failed[i]], wrote[failed[i]]
      printf "%s", rest
      if (failures == 0) printf "%s", wrote[test]
    }' "$log"
done
