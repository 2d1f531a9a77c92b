"""Prints the ids of the messages on standard input that a secret signed, as a receiver without a library finds them."""
import base64, hashlib, hmac, json, sys, time

key = base64.b64decode(sys.argv[1].removeprefix("whsec_"), validate=True)

for line in sys.stdin:
    message = json.loads(line)
    headers, body = message["headers"], message["body"]
    id, timestamp = headers["webhook-id"], headers["webhook-timestamp"]
    signed = f"{id}.{timestamp}.{body}".encode()
    expected = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest())
    signatures = [one.split(",", 1) for one in headers["webhook-signature"].split(" ")]
    fresh = abs(time.time() - int(timestamp)) < 300
    if fresh and any(v == "v1" and hmac.compare_digest(expected, given.encode()) for v, given in signatures):
        print(id)
