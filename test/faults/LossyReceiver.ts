import { appendFileSync } from "node:fs"
import type { AddressInfo } from "node:net"
import { makeReceiver } from "../support/http/webhookReceiver.ts"

/** An endpoint as a process that loses one answer in 40: arguments are the file for what it receives, and its port. */
const [file = "", port] = process.argv.slice(2)

const server = makeReceiver(
  (nth) => (nth % 40 === 39 ? "lost" : 200),
  (received) => appendFileSync(file, `${JSON.stringify(received)}\n`)
)
server.listen(Number(port), "127.0.0.1", () => console.log((server.address() as AddressInfo).port))
