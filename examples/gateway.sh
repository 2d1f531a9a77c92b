#!/bin/sh
# A gateway in shell that tries a customer's own keys, with curl and jq: sh gateway.sh SOCKET ACCOUNT UPSTREAM
set -eu
fail() { echo "$1" >&2 && exit 1; }
[ $# = 3 ] || fail "usage: sh gateway.sh SOCKET ACCOUNT UPSTREAM"
socket=$1 account=$2 upstream=$3
body=$(mktemp) && trap 'rm -f "$body"' EXIT
ask() { curl -sS --fail-with-body --unix-socket "$socket" "http://byok$1" -H 'Content-Type: application/json' -d "$2"; }

targets='[{"provider":"openai","endpoint":{"shared":false}}]' status=null
answer=$(ask /v1/routes "{\"account_id\":\"$account\",\"model\":\"openai/gpt-4o\",\"targets\":$targets}") ||
  fail "byok did not open a route on $socket: $answer"
route=$(echo "$answer" | jq -r .data.route)
while n=$(echo "$answer" | jq -er '.data.next.attempt // empty'); do
  label=$(echo "$answer" | jq -r .data.next.label)
  # Through standard input: everybody on the machine can see the arguments of a process.
  status=$(echo "$answer" | jq -r '"header = \"Authorization: Bearer \(.data.next.key)\""' |
    curl -sS -m 60 -K - -o "$body" -w '%{http_code}' "$upstream" -d '{}') || status=null
  answer=$(ask "/v1/routes/$route/attempts/$n" "{\"status\":$status}") || fail "byok did not take the report: $answer"
  echo "$label $(echo "$answer" | jq -r .data.outcome)" >&2
done
[ "$status" = 200 ] || fail "no key could serve the request"
cat "$body"
