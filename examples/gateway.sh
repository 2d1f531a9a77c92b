#!/bin/sh
# A gateway in shell that tries a customer's own keys, with curl and jq: sh gateway.sh SOCKET ACCOUNT UPSTREAM
set -eu
fail() { echo "$1" >&2 && exit 1; }
[ $# = 3 ] || fail "usage: sh gateway.sh SOCKET ACCOUNT UPSTREAM"
socket=$1 account=$2 upstream=$3
ask() { curl -sS --fail-with-body --unix-socket "$socket" "http://byok$1" -H 'Content-Type: application/json' -d "$2"; }
of() { printf %s "$answer" | jq -cr "$1"; }
# Upstreams repeat keys; a line break never cuts one in two.
pass_on() { KEY=$key jq -Rr --unbuffered 'split(env.KEY) | join("<key>")'; }

# Tries the key of $answer, and the next ones after it.
try() {
  n=$(of '.data.next.attempt // empty') key=$(of .data.next.key) label=$(of .data.next.label)
  [ "$n" ] || fail "no key could serve the request: $reasons"
  # Through standard input: everybody on the machine can see the arguments of a process.
  of '"header = \"Authorization: Bearer \(.data.next.key)\""' | curl -sSNi -y 60 -K - "$upstream" -d '{}' | {
    status=null retry='' refusal=''
    while IFS=" $(printf '\r')" read -r name value && [ "$name" ]; do
      case $name in HTTP/*) status=${value%%[!0-9]*} ;; [Rr]etry-[Aa]fter:) retry=$value ;; esac
    done
    [ "$status" = null ] || [ "$status" -lt 400 ] || refusal=$(cat)
    report=$(printf %s "$refusal" | jq -Rsc --argjson status "$status" --arg retry_after "$retry" \
      '{$status, $retry_after, codes: [fromjson? | .error? | objects | .code, .type, .status, .details[]?.reason?]}')
    answer=$(ask "/v1/routes/$route/attempts/$n" "$report") || fail "byok did not take the report: $answer"
    echo "$label $(of .data.outcome)" >&2
    case $(of .data.outcome) in
      succeeded) pass_on ;;
      request_refused) printf %s "$refusal" | pass_on && exit 1 ;;
      *) try ;;
    esac
  }
}
targets='[{"provider":"openai","endpoint":{"shared":false}}]'
form='"keys":"tokens"' # Short-lived ones, where the stored key signs them; other keys come as they are.
answer=$(ask /v1/routes "{\"account_id\":\"$account\",\"model\":\"openai/gpt-4o\",\"targets\":$targets,\"explain\":true,$form}") ||
  fail "byok did not open a route on $socket: $answer"
route=$(of .data.route) reasons=$(of .data.providers)
try
