# Sends one request for Bedrock or Vertex with what byok hands out: cloud_gateway.py SOCKET ACCOUNT UPSTREAM PROVIDER KEYS
# It sends to UPSTREAM, and says in X-Host which host docs/gateway.md names.
import http.client, json, socket, sys, urllib.error, urllib.parse, urllib.request

path, account, upstream, provider, keys = sys.argv[1:]
def ask(route, body):
    byok = http.client.HTTPConnection("localhost")
    byok.sock = socket.socket(socket.AF_UNIX)
    byok.sock.connect(path)
    byok.request("POST", route, json.dumps(body), {"content-type": "application/json"})
    return json.loads(byok.getresponse().read())["data"]

targets = [{"provider": provider, "endpoint": {"shared": False}}]
asked = {"account_id": account, "model": "a/model", "targets": targets, "keys": keys}
attempt = ask("/v1/attempts", asked)["next"]
cloud = attempt.get("cloud") or {}
region, project = cloud.get("region"), cloud.get("project_id")
if provider == "amazon-bedrock":
    host = f"bedrock-runtime.{region}.amazonaws.com"
    target = "/model/" + urllib.parse.quote("us.a-model-v1:0", safe="") + "/converse"
else:
    host = f"{region}-aiplatform.googleapis.com"
    target = f"/v1/projects/{project}/locations/{region}/publishers/google/models/a-model:generateContent"
headers = {"authorization": "Bearer " + attempt["key"], "x-host": host}
print(attempt["label"], attempt.get("key_kind"), attempt.get("key_expires_at"), file=sys.stderr)
try:
    response = urllib.request.urlopen(urllib.request.Request(upstream + target, b"{}", headers), timeout=60)
except urllib.error.HTTPError as error: response = error
answer = ask("/v1/attempts", {**asked, "after": {"attempt": attempt["attempt"], "status": response.status}})
print(answer["outcome"], response.read().decode())
