// A gateway in Node.js that tries a customer's own keys: node gateway.mjs SOCKET ACCOUNT UPSTREAM
import { once } from "node:events"
import { request } from "node:http"
import { json } from "node:stream/consumers"
const [socketPath = "", account_id = "", upstream = ""] = process.argv.slice(2)
process.exitCode = 1
process.on("uncaughtException", ({ message }) => console.error(`gateway failed: ${message}`))
if (upstream === "") throw new Error("usage: node gateway.mjs SOCKET ACCOUNT UPSTREAM")
/** @type {(path: string, body: object) => Promise<any>} */
const ask = async (path, body) => {
  const headers = { "content-type": "application/json" }
  const sent = request({ socketPath, path, method: "POST", headers }).end(JSON.stringify(body))
  const [answer] = await once(sent, "response")
  const { data, error } = /** @type {any} */ (await json(answer))
  return data ?? Promise.reject(new Error(`byok refused: ${JSON.stringify(error)}`))
}
const targets = [{ provider: "openai", endpoint: { shared: false } }]
let answer
let { next, route } = await ask("/v1/routes", { account_id, model: "openai/gpt-4o", targets })
while (next) {
  const headers = { authorization: `Bearer ${next.key}` }
  answer = await fetch(upstream, { method: "POST", headers, body: "{}" }).catch(() => undefined)
  const report = { status: answer?.status ?? null, retry_after: answer?.headers.get("retry-after") ?? null }
  const { next: other, outcome } = await ask(`/v1/routes/${route}/attempts/${next.attempt}`, report)
  console.error(next.label, outcome)
  next = other
}
if (!answer?.ok) throw new Error("no key could serve the request")
process.stdout.write(await answer.text())
process.exitCode = 0
