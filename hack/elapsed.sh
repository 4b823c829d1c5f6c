#!/usr/bin/env bash
# Shows on a terminal how long something has run, from PATIENCE seconds (2) on. Elsewhere, and in CI, it shows nothing.
#
#   elapsed.sh TEXT COMMAND…    while a command runs, with whose code it ends
#   elapsed.sh TEXT PID         while a process exists
set -uo pipefail
text=$1
shift
show() { # PID
  [ -t 1 ] && [ -z "${CI:-}" ] || return 0
  local begun=$SECONDS shown=
  while kill -0 "$1" 2>/dev/null; do
    if [ $((SECONDS - begun)) -ge "${PATIENCE:-2}" ]; then
      printf '\r  %s: %d s\033[K' "$text" $((SECONDS - begun))
      shown=yes
    fi
    sleep 0.2
  done
  [ -z "$shown" ] || printf '\r\033[K'
}
if [[ $# = 1 && $1 =~ ^[0-9]+$ ]]; then
  show "$1"
  exit
fi
"$@" <&0 &
show $!
wait $!
