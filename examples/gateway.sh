#!/bin/sh
# A gateway in shell that tries a customer's own keys, with curl and jq: sh gateway.sh SOCKET ACCOUNT UPSTREAM
set -eu
fail() { echo "$1" >&2 && exit 1; }
[ $# = 3 ] || fail "usage: sh gateway.sh SOCKET ACCOUNT UPSTREAM"
socket=$1 account=$2 upstream=$3 seen=''
ask() { curl -sS --fail-with-body --unix-socket "$socket" "http://byok$1" -H 'Content-Type: application/json' -d "$2"; }
of() { printf %s "$answer" | jq -cr "$1"; }
# Upstreams repeat keys; a line break never cuts one in two.
pass_on() { KEY=$key jq -Rr --unbuffered 'split(env.KEY) | join("<key>")'; }
# Tries the key of $answer, and the next ones after it.
try() {
  attempt=$(of '.data.next.attempt // empty') key=$(of .data.next.key) label=$(of .data.next.label) id=$(of .data.next.credential_id)
  [ "$attempt" ] || fail "no key could serve the request: $(of "[{}, $verdicts$seen] | add")"
  # Through standard input: everybody on the machine can see the arguments of a process.
  of '"header = \"Authorization: Bearer \(.data.next.key)\""' | curl -sSNi -y 60 -K - "$upstream" -d '{}' | {
    status=null retry='' refusal=''
    while IFS=" $(printf '\r')" read -r name value && [ "$name" ]; do
      case $name in HTTP/*) status=${value%%[!0-9]*} ;; [Rr]etry-[Aa]fter:) retry=$value ;; esac
    done
    # A stream may fail after its head: its first event, of one or two lines, says so.
    [ "$status" = null ] || [ "$status" -lt 400 ] && { IFS= read -r refusal || :; } || refusal=$(cat)
    case $refusal in event:*) IFS= read -r data && refusal=$(printf '%s\n%s' "$refusal" "$data") ;; esac
    after=$(printf %s "$refusal" | jq -Rsc --arg attempt "$attempt" --argjson status "$status" --arg retry_after "$retry" \
      '{$attempt, $status, $retry_after, body: .[:8192]}')
    answer=$(ask /v1/attempts "{$asked,\"after\":$after}") || fail "byok did not take the report: $answer"
    outcome=$(of .data.outcome) && echo "$label $outcome" >&2 && seen="$seen, {\"$id\": \"$outcome\"}"
    case $(of '.data.outcome + if .data.next then "" else "!" end') in
      succeeded*) { printf '%s\n' "$refusal"; cat; } | pass_on ;;
      request_refused* | not_served!) printf %s "$refusal" | pass_on && exit 1 ;;
      *) try ;;
    esac
  }
}
verdicts='(.data.providers[].credentials[] | {(.credential_id): .exclusions})'
targets='[{"provider":"openai","endpoint":{"shared":false}}]'
# Tokens are short-lived, where the stored key signs them; other keys come as they are.
asked="\"account_id\":\"$account\",\"model\":\"openai/gpt-4o\",\"targets\":$targets,\"keys\":\"tokens\""
answer=$(ask /v1/attempts "{$asked}") || fail "byok gave no attempt on $socket: $answer"
try
