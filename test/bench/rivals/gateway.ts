import { once } from "node:events"
import { Agent, createServer, type IncomingMessage, request, type RequestOptions, type ServerResponse } from "node:http"
import { json, text } from "node:stream/consumers"

const [port, socketPath, upstream = ""] = process.argv.slice(2)
const { hostname, port: upstreamPort } = new URL(upstream)
const agent = new Agent({ keepAlive: true })
const targets = [{ provider: "azure", endpoint: { shared: false } }]
const type = { "content-type": "application/json" }

interface Answer {
  readonly data: { readonly next: { readonly attempt: string; readonly key: string } }
}

const post = async (options: RequestOptions, body: string) => {
  const sent = request({ method: "POST", agent, headers: type, ...options }).end(body)
  const [response] = (await once(sent, "response")) as [IncomingMessage]
  return response
}
const ask = async (path: string, body: object) => json(await post({ socketPath, path }, JSON.stringify(body)))

/** Asks byok for a key of the account that the token names, calls the upstream with it, and reports its status. */
const serve = async (incoming: IncomingMessage, outgoing: ServerResponse) => {
  const account_id = incoming.headers.authorization?.slice("Bearer ".length)
  const body = await text(incoming)
  const { model } = JSON.parse(body) as { readonly model: string }
  const { next } = ((await ask("/v1/attempts", { account_id, model, targets })) as Answer).data
  const headers = { ...type, authorization: `Bearer ${next.key}` }
  const answer = await post({ hostname, port: upstreamPort, path: incoming.url, headers }, body)
  const reported = ask("/v1/reports", { reports: [{ attempt: next.attempt, status: answer.statusCode }] })
  outgoing.writeHead(answer.statusCode ?? 502, type).end(await text(answer))
  await reported
}

createServer((incoming, outgoing) => void serve(incoming, outgoing)).listen(Number(port), "127.0.0.1")
