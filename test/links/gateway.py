# A gateway with customers: sends links to their keys' owners, routes, and hears from the feed what became of a key.
import http.client, json, socket, sys, urllib.error, urllib.request

path, account, upstream = sys.argv[1:]

def ask(method, route, body=None):
    byok = http.client.HTTPConnection("localhost")
    byok.sock = socket.socket(socket.AF_UNIX)
    byok.sock.connect(path)
    byok.request(method, route, body and json.dumps(body), {"content-type": "application/json"})
    return json.loads(byok.getresponse().read())

def send(link):
    print("link", ask("POST", f"/v1/accounts/{account}/links", link)["data"]["url"], flush=True)

after = ask("GET", "/v1/events")["last_seq"]

def hear(action):
    global after
    while True:
        answer = ask("GET", f"/v1/events?after={after}&wait=25")
        after = answer["last_seq"]
        for event in answer["data"]:
            if event["action"] == action:
                print("event", action, event["label"], event["actor"]["kind"], flush=True)
                return event

def serve():
    targets = [{"provider": "openai", "endpoint": {"shared": False}}]
    asked = {"account_id": account, "model": "openai/gpt-4o", "targets": targets}
    answer = ask("POST", "/v1/attempts", asked)["data"]
    while attempt := answer["next"]:
        try:
            request = urllib.request.Request(upstream, b"{}", {"authorization": "Bearer " + attempt["key"]})
            report = {"status": urllib.request.urlopen(request, timeout=60).status}
        except urllib.error.HTTPError as error:
            report = {"status": error.code}
        answer = ask("POST", "/v1/attempts", {**asked, "after": {"attempt": attempt["attempt"], **report}})["data"]
        print("route", attempt["label"], answer["outcome"], flush=True)

send({"purpose": "connect", "provider": "openai"})
hear("credential.create")
serve()
refused = hear("credential.rejected")
send({"purpose": "replace", "credential_id": refused["credential_id"]})
hear("credential.rotate")
serve()
