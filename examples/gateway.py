# A gateway in Python that tries a customer's own keys, with the standard library: python3 gateway.py SOCKET ACCOUNT UPSTREAM
import http.client, json, socket, sys, urllib.error, urllib.request

path, account, upstream = sys.argv[1:]

class Byok(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(path)

def ask(method, route, body=None):
    byok = Byok("localhost")
    byok.request(method, route, json.dumps(body or {}), {"content-type": "application/json"})
    answer = byok.getresponse()
    return answer.status, json.loads(answer.read())

targets = [{"provider": "openai", "endpoint": {"shared": False}}]
status, made = ask("POST", "/v1/routes", {"account_id": account, "model": "openai/gpt-4o", "targets": targets})
if status != 201: sys.exit(f"byok answered {status}: {made['error']['message']}")
attempt, route = made["data"]["next"], made["data"]["route"]
while attempt:
    request = urllib.request.Request(upstream, b"{}", {"authorization": "Bearer " + attempt["key"]})
    try: response, report = urllib.request.urlopen(request, timeout=60), {"status": 200}
    except urllib.error.HTTPError as error: response, report = None, {"status": error.code, "retry_after": error.headers["retry-after"]}
    except OSError: response, report = None, {"status": None}
    _, answer = ask("POST", f"/v1/routes/{route}/attempts/{attempt['attempt']}", report)
    print(attempt["label"], answer["data"]["outcome"], file=sys.stderr)
    if response: sys.stdout.write(response.read().decode())
    attempt = answer["data"]["next"]
