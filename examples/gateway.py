# A gateway in Python that tries a customer's own keys, with the standard library: python3 gateway.py SOCKET ACCOUNT UPSTREAM
import http.client, itertools, json, socket, sys, urllib.error, urllib.request
if len(sys.argv) != 4: sys.exit("usage: python3 gateway.py SOCKET ACCOUNT UPSTREAM")
path, account, upstream = sys.argv[1:]
def ask(route, body):
    byok = http.client.HTTPConnection("localhost")
    byok.sock = socket.socket(socket.AF_UNIX)
    try:
        byok.sock.connect(path)
        byok.request("POST", route, json.dumps(body), {"content-type": "application/json"})
        answer = json.loads(byok.getresponse().read())
    except (OSError, http.client.HTTPException) as error: sys.exit(f"byok does not answer on {path}: {error}")
    return answer["data"] if "data" in answer else sys.exit(f"byok refused: {json.dumps(answer['error'])}")
targets = [{"provider": "openai", "endpoint": {"shared": False}}]
# Tokens are short-lived, where the stored key signs them; other keys come as they are.
request = {"account_id": account, "model": "openai/gpt-4o", "targets": targets, "keys": "tokens"}
answer, seen = ask("/v1/attempts", request), {}
while attempt := answer["next"]:
    key, lines, result = attempt["key"], [], {"status": None}
    try:
        sent = urllib.request.Request(upstream, b"{}", {"authorization": "Bearer " + key})
        response = urllib.request.urlopen(sent, timeout=60)
        first = response.read1(8192)  # A stream may fail after its head: its first event says so.
        rest = b"" if first.endswith(b"\n") else response.readline()
        lines = itertools.chain((first + rest).splitlines(True), response)
        result = {"status": response.status, "body": first.decode(errors="replace")}
    except urllib.error.HTTPError as error:
        lines = [error.read()]
        body = lines[0].decode(errors="replace")[:8192]
        result = {"status": error.code, "retry_after": error.headers["retry-after"], "body": body}
    except (OSError, http.client.HTTPException, ValueError): pass
    answer = ask("/v1/attempts", {**request, "after": {"attempt": attempt["attempt"], **result}})
    seen[attempt["credential_id"]] = answer["outcome"]
    print(attempt["label"], answer["outcome"], file=sys.stderr)
    if answer["outcome"] in ("succeeded", "request_refused") or answer["outcome"] == "not_served" and not answer["next"]:
        for line in lines:  # Upstreams repeat keys; a line break never cuts one in two.
            print(line.replace(key.encode(), b"<key>").decode(errors="replace"), end="", flush=True)
        sys.exit(answer["outcome"] != "succeeded")
verdicts = {one["credential_id"]: one["exclusions"] for each in answer["providers"] for one in each["credentials"]}
sys.exit(f"no key could serve the request: {json.dumps(verdicts | seen)}")
