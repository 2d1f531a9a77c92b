// A gateway in Node.js that tries a customer's own keys: node gateway.mjs SOCKET ACCOUNT UPSTREAM
import { once } from "node:events"
import { request } from "node:http"
import { createInterface } from "node:readline"
import { Readable } from "node:stream"
import { json } from "node:stream/consumers"
const [socketPath = "", account_id = "", upstream = ""] = process.argv.slice(2)
process.exitCode = 1
process.on("uncaughtException", ({ message }) => console.error(`gateway failed: ${message}`))
if (upstream === "") throw new Error("usage: node gateway.mjs SOCKET ACCOUNT UPSTREAM")
/** @type {(path: string, body: object) => Promise<any>} */
const ask = async (path, body) => {
  const headers = { "content-type": "application/json" }
  const sent = request({ socketPath, path, method: "POST", headers }).end(JSON.stringify(body))
  const { data, error } = /** @type {any} */ (await json((await once(sent, "response"))[0]))
  return data ?? Promise.reject(new Error(`byok refused: ${JSON.stringify(error)}`))
}
const targets = [{ provider: "openai", endpoint: { shared: false } }]
const asked = { account_id, model: "openai/gpt-4o", targets, keys: "tokens" } // Tokens, where the stored key signs them.
const seen = /** @type {Record<string, unknown>} */ ({})
let { next, outcome, providers } = await ask("/v1/attempts", asked)
while (next) {
  const { attempt, credential_id, key, label } = next
  const sent = { method: "POST", headers: { authorization: `Bearer ${key}` }, body: "{}" }
  const answer = await fetch(upstream, sent).catch(() => undefined)
  const parts = answer?.body?.values() // A stream may fail after its head: its first event says so.
  const read = [Buffer.from((await parts?.next().catch(() => undefined))?.value ?? "")]
  if (answer?.ok === false) for await (const part of parts ?? []) read.push(Buffer.from(part))
  const body = Buffer.concat(read).toString().slice(0, 8192)
  const after = { attempt, status: answer?.status ?? null, retry_after: answer?.headers.get("retry-after"), body }
  ;({ next, outcome, providers } = await ask("/v1/attempts", { ...asked, after }))
  console.error(label, (seen[credential_id] = outcome))
  if (outcome !== "succeeded" && outcome !== "request_refused" && (outcome !== "not_served" || next)) continue
  const whole = Readable.from([read, parts ?? []]).flatMap((each) => each)
  // Upstreams repeat keys; a line break never cuts one in two.
  for await (const line of createInterface(whole)) console.log(line.replaceAll(key, "<key>"))
  process.exit(outcome === "succeeded" ? 0 : 1)
}
for (const { credentials } of providers) for (const one of credentials) seen[one.credential_id] ??= one.exclusions
throw new Error(`no key could serve the request: ${JSON.stringify(seen)}`)
