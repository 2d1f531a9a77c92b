// A gateway in Node.js that tries a customer's own keys: node gateway.mjs SOCKET ACCOUNT UPSTREAM
import { request } from "node:http"
import { text } from "node:stream/consumers"

const [socketPath = "", account_id = "", upstream = ""] = process.argv.slice(2)

/** @type {(path: string, body: object) => Promise<any>} */
const ask = (path, body) =>
  new Promise((resolve, reject) => {
    const headers = { "content-type": "application/json" }
    const sent = request({ socketPath, path, method: "POST", headers }, async (answer) => {
      const { data, error } = JSON.parse(await text(answer))
      if (error) reject(new Error(`byok answered ${error.code}: ${error.message}`))
      else resolve(data)
    })
    sent.on("error", reject).end(JSON.stringify(body))
  })

const targets = [{ provider: "openai", endpoint: { shared: false } }]
let { next, route } = await ask("/v1/routes", { account_id, model: "openai/gpt-4o", targets })
while (next) {
  const headers = { authorization: `Bearer ${next.key}` }
  const answer = await fetch(upstream, { method: "POST", headers, body: "{}" }).catch(() => undefined)
  const report = { status: answer?.status ?? null, retry_after: answer?.headers.get("retry-after") ?? null }
  const { next: other, outcome } = await ask(`/v1/routes/${route}/attempts/${next.attempt}`, report)
  console.error(next.label, outcome)
  if (answer?.ok) process.stdout.write(await answer.text())
  next = other
}
