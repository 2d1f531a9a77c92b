# A gateway in Python that tries a customer's own keys, with the standard library: python3 gateway.py SOCKET ACCOUNT UPSTREAM
import http.client, json, socket, sys, urllib.error, urllib.request

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
answer = ask("/v1/routes", {"account_id": account, "model": "openai/gpt-4o", "targets": targets})
route, response = answer["route"], None
while attempt := answer["next"]:
    try:
        request = urllib.request.Request(upstream, b"{}", {"authorization": "Bearer " + attempt["key"]})
        response = urllib.request.urlopen(request, timeout=60)
        report = {"status": response.status}
    except urllib.error.HTTPError as error: report = {"status": error.code, "retry_after": error.headers["retry-after"]}
    except (OSError, http.client.HTTPException, ValueError): report = {"status": None}
    answer = ask(f"/v1/routes/{route}/attempts/{attempt['attempt']}", report)
    print(attempt["label"], answer["outcome"], file=sys.stderr)
if not response: sys.exit("no key could serve the request")
sys.stdout.write(response.read().decode())
