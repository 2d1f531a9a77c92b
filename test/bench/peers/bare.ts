import { createHash } from "node:crypto"
import { createServer, type IncomingMessage, type ServerResponse } from "node:http"
import { Provider } from "../../../src/domain/Provider.ts"
import { type Body, isAcceptable } from "./credential.ts"
import { store } from "./store.ts"

const providers = new Set<string>(Provider.literals)

const send = (response: ServerResponse, status: number, value: object) => {
  const body = JSON.stringify(value)
  response
    .writeHead(status, { "content-type": "application/json", "content-length": Buffer.byteLength(body) })
    .end(body)
}

const readBody = async (request: IncomingMessage): Promise<Body> => {
  const chunks: Array<Buffer> = []
  for await (const chunk of request) chunks.push(chunk as Buffer)
  return JSON.parse(Buffer.concat(chunks).toString("utf8")) as Body
}

const handle = async (request: IncomingMessage, response: ServerResponse) => {
  const token = request.headers.authorization?.slice(7) ?? ""
  const hash = createHash("sha256").update(token).digest()
  const key = await store.findKey(hash)
  if (key?.management !== true) return send(response, 401, { error: { code: 401, message: "Invalid API key" } })
  if (request.method === "GET") {
    const credential = await store.find(request.url?.slice("/api/v1/byok/".length) ?? "", key)
    return credential === undefined
      ? send(response, 404, { error: { code: 404, message: "Resource not found" } })
      : send(response, 200, { data: credential })
  }
  const body = await readBody(request)
  if (typeof body.key !== "string" || !providers.has(body.provider) || !isAcceptable(body)) {
    return send(response, 400, { error: { code: 400, message: "Invalid request parameters" } })
  }
  send(response, 201, { data: await store.insert(body, key) })
}

createServer((request, response) => {
  handle(request, response).catch(() => {
    send(response, 500, { error: { code: 500, message: "Internal Server Error" } })
  })
}).listen(Number(process.env["PORT"]), "127.0.0.1")
