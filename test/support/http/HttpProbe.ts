import { Effect } from "effect"
import { open } from "./RawConnection.ts"
import { assertDeclared } from "./JsonSchema.ts"
import { HttpEffect, HttpServerResponse } from "effect/http"

export type Header = readonly [name: string, value: string]

/** A request to send exactly as written, without checks or corrections. */
export interface Request {
  readonly method?: string
  readonly path: string
  /** Beside `Host`, and `Content-Length` where a body is sent without chunks. */
  readonly headers?: ReadonlyArray<Header>
  readonly body?: string | Uint8Array | undefined
}

const names = (headers: ReadonlyArray<Header>, name: string) => headers.some(([given]) => given.toLowerCase() === name)

/** The bytes of a request. */
export const render = ({ body = "", headers = [], method = "GET", path }: Request): Buffer => {
  const bytes = Buffer.from(body)
  const framed = names(headers, "content-length") || names(headers, "transfer-encoding")
  const all: ReadonlyArray<Header> = [
    ...(names(headers, "host") ? [] : [["Host", "localhost"] as const]),
    ...headers,
    ...(framed || bytes.length === 0 ? [] : [["Content-Length", String(bytes.length)] as const])
  ]
  const head = `${method} ${path} HTTP/1.1\r\n${all.map(([name, value]) => `${name}: ${value}\r\n`).join("")}\r\n`
  return Buffer.concat([Buffer.from(head, "latin1"), bytes])
}

/** Sends bytes over a new connection and reads one answer, without a body if the method is HEAD. */
export const exchange = (url: string, bytes: string | Uint8Array) =>
  Effect.scoped(
    Effect.gen(function* () {
      const connection = yield* open(url)
      yield* connection.write(bytes)
      return yield* Buffer.from(bytes).toString("latin1", 0, 5) === "HEAD " ? connection.head : connection.answer
    })
  )

/** Sends one request over a new connection. */
export const send = (url: string, request: Request) => exchange(url, render(request))

export const bearer = (token: string): Header => ["Authorization", `Bearer ${token}`]
export const json: Header = ["Content-Type", "application/json"]

const collection = "/api/v1/byok"

const bodyOf = (body: unknown) =>
  body === undefined || typeof body === "string" || body instanceof Uint8Array ? body : JSON.stringify(body)

/** The bytes of a create: a text or bytes are sent as they are, anything else as JSON. */
export const creation = (token: string, body?: unknown, headers: ReadonlyArray<Header> = []) =>
  render({ method: "POST", path: collection, headers: [bearer(token), json, ...headers], body: bodyOf(body) })

/** The operations under a key, whose answers must be as the contract declares them; bodies are sent as `creation` does. */
export const operationsOf = (url: string, token: string) => {
  const ask = (method: string, template: string, path: string, headers: ReadonlyArray<Header> = [], body?: unknown) => {
    const request = { method: method.toUpperCase(), path: `${collection}${path}`, body: bodyOf(body) }
    return Effect.tap(send(url, { ...request, headers: [bearer(token), ...headers] }), (answer) =>
      Effect.sync(() => assertDeclared([method, `${collection}${template}`], answer))
    )
  }
  return {
    create: (body: unknown, headers: ReadonlyArray<Header> = []) => ask("post", "", "", [json, ...headers], body),
    get: (id: string, headers?: ReadonlyArray<Header>) => ask("get", "/{id}", `/${id}`, headers),
    /** With a query such as `?limit=1`. */
    list: (query = "", headers?: ReadonlyArray<Header>) => ask("get", "", query, headers),
    update: (id: string, body: unknown, headers: ReadonlyArray<Header> = []) =>
      ask("patch", "/{id}", `/${id}`, [json, ...headers], body),
    delete: (id: string, headers?: ReadonlyArray<Header>) => ask("delete", "/{id}", `/${id}`, headers),
    events: (query = "") => ask("get", "/events", `/events${query}`),
    order: (body: unknown) => ask("put", "/order", "/order", [json], body),
    plan: (body: unknown) => ask("post", "/plan", "/plan", [json], body)
  }
}

export const create = (url: string, token: string, body: unknown, headers?: ReadonlyArray<Header>) =>
  operationsOf(url, token).create(body, headers)

export const get = (url: string, token: string, id: string, headers?: ReadonlyArray<Header>) =>
  operationsOf(url, token).get(id, headers)

/** Adds a header to the answer from anywhere below it, as only a build with a planted leak does. */
export const addHeader = (name: string, value: string) =>
  Effect.map(Effect.context(), (context) =>
    HttpEffect.appendPreResponseHandlerUnsafe(context, (_request, response) =>
      Effect.succeed(HttpServerResponse.setHeader(response, name, value))
    )
  )
