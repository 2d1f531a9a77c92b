import { randomBytes } from "node:crypto"
import { type IncomingMessage, request as httpRequest } from "node:http"
import { request as httpsRequest } from "node:https"
import { assert } from "@effect/vitest"
import { Effect } from "effect"
import { GatewayApi } from "../../src/contract/GatewayApi.ts"
import { LinksApi } from "../../src/contract/LinksApi.ts"
import { seal } from "../links/browser.ts"

/** Where a service is reached: by its socket for gateways, or at the URL of its port. */
export type Address = { readonly socketPath: string } | { readonly url: string }

export interface Answered {
  readonly status: number
  readonly headers: IncomingMessage["headers"]
  readonly text: string
  /** The member `data` of the body. */
  readonly data: never
}

/** Sends a request over a new connection, without checking the certificate. A body in text is sent as it is. */
export const call = (to: Address, method: string, path: string, body?: object | string, token?: string) =>
  Effect.callback<Answered>((resume) => {
    const { hostname: host, port, protocol } = new URL("url" in to ? to.url : "http://byok")
    const target = "url" in to ? { host, port } : to
    const headers = {
      connection: "keep-alive",
      "content-type": "application/json",
      ...(token === undefined ? {} : { authorization: `Bearer ${token}` })
    }
    const options = { ...target, method, path, headers, agent: false, rejectUnauthorized: false }
    const request = (protocol === "https:" ? httpsRequest : httpRequest)(options, (response) => {
      let text = ""
      response.setEncoding("utf8").on("data", (part: string) => (text += part))
      response.once("end", () => {
        request.destroy()
        const { data } = JSON.parse(text) as { data: never }
        resume(Effect.succeed({ status: response.statusCode ?? 0, headers: response.headers, text, data }))
      })
    })
    request.once("error", (error) => resume(Effect.die(error)))
    request.end(typeof body === "object" ? JSON.stringify(body) : body)
  })

type State = Readonly<Record<string, string>>

/** What a call sends, by what earlier calls answered, and what of its answer later calls need. */
interface Step {
  readonly params?: (state: State) => State
  readonly query?: (state: State) => string
  readonly body?: (state: State, about: Effect.Effect<never>) => Effect.Effect<object>
  readonly keep?: (data: never) => State
}

const target = { provider: "azure" }
const key = "sk-fake-0123456789-0123456789-AbCd"
const ofCredential: Step = { params: ({ credential = "" }) => ({ id: credential }) }
const sending = (body: (state: State) => object) => ({ body: (state: State) => Effect.sync(() => body(state)) })
const routing = sending(({ account_id }) => ({ account_id, model: "a/model", targets: [target] }))
const planning = sending(() => ({ model: "a/model", targets: [target] }))
const ordering = sending(({ credential }) => ({ ...target, ids: [credential] }))
const named = sending(() => ({ name: "a name" }))
const keepCredential = ({ id }: { id: string }) => ({ credential: id })
const keepAttempt = ({ next }: { next: { attempt: string } }) => ({ attempt: next.attempt })

/** Every operation of the socket, and of the links API (`page`), in an order in which each succeeds. */
const steps: ReadonlyArray<readonly [name: string, step: Step]> = [
  ["health.ready", {}],
  ["accounts.create", { ...named, keep: (ids: { account_id: string; workspace_id: string }) => ids }],
  ["accounts.list", {}],
  ["accounts.createWorkspace", { ...named, keep: (ids: { workspace_id: string }) => ids }],
  ["accounts.listWorkspaces", {}],
  ["accounts.deleteWorkspace", {}],
  ["accounts.createApiKey", { ...named, keep: ({ hash }: { hash: string }) => ({ hash }) }],
  ["accounts.listApiKeys", {}],
  ["credentials.create", { ...sending(() => ({ ...target, key })), keep: keepCredential }],
  ["credentials.list", {}],
  ["credentials.plan", planning],
  ["credentials.order", ordering],
  ["credentials.events", {}],
  ["credentials.get", ofCredential],
  ["credentials.status", ofCredential],
  ["credentials.update", { ...ofCredential, ...named }],
  ["attempts.next", { ...routing, keep: keepAttempt }],
  ["attempts.report", sending(({ attempt }) => ({ reports: [{ attempt, status: 200 }] }))],
  ["credentials.delete", ofCredential],
  [
    "links.create",
    {
      ...sending(() => ({ purpose: "manage" })),
      keep: ({ link_id, url }: { link_id: string; url: string }) => ({ link_id, url, token: url.split("#")[1] ?? "" })
    }
  ],
  ["links.list", {}],
  ["page.about", {}],
  [
    "page.create",
    {
      body: (_, about) =>
        Effect.flatMap(about, (about) =>
          Effect.map(seal(about, key, target.provider), (sealed_key) => ({ ...target, name: null, sealed_key }))
        ),
      keep: keepCredential
    }
  ],
  ["page.update", { ...ofCredential, ...named }],
  ["page.apiKeys", {}],
  ["page.list", {}],
  ["page.plan", planning],
  ["page.order", ordering],
  ["page.events", { query: ({ credential }) => `?credential_id=${credential}` }],
  ["page.get", ofCredential],
  ["page.status", ofCredential],
  ["page.delete", ofCredential],
  ["page.replaceToken", sending(() => ({ token: randomBytes(32).toString("base64url") }))],
  ["links.revoke", {}],
  ["accounts.revokeApiKey", {}],
  ["accounts.delete", {}],
  ["events.list", {}]
]

interface Endpoint {
  readonly method: string
  readonly path: string
}

const endpointsOf = (group: string, { endpoints }: { readonly endpoints: object }) =>
  Object.entries(endpoints).map(([name, endpoint]) => [`${group}.${name}`, endpoint as Endpoint] as const)

/** The endpoints of both contracts by their names. */
const endpoints = new Map<string, Endpoint>([
  ...Object.entries(GatewayApi.groups).flatMap(([name, group]) => endpointsOf(name, group)),
  ...endpointsOf("page", LinksApi.groups.links)
])

/**
 * Calls every operation of both contracts, and requires that each succeeds. Fails if the steps lack an operation.
 * Returns what the calls kept, such as the `url` of a link.
 */
export const callEveryOperation = Effect.fnUntraced(function* (socket: Address, port: Address) {
  assert.sameMembers(Array.from(new Set(steps.map(([name]) => name))), Array.from(endpoints.keys()))
  let state: State = {}
  const about = Effect.map(
    Effect.suspend(() => call(port, "GET", "/api/links/v1/link", undefined, state["token"])),
    ({ data }) => data
  )
  for (const [name, { body, keep, params, query }] of steps) {
    const { method, path } = endpoints.get(name) ?? assert.fail(name)
    const values: State = { ...state, ...params?.(state) }
    const filled = path.replace(/:(\w+)/g, (_, parameter: string) => values[parameter] ?? assert.fail(parameter))
    const sent = body === undefined ? undefined : yield* body(state, about)
    const to = name.startsWith("page.") ? port : socket
    const { data, status, text } = yield* call(
      to,
      method,
      `${filled}${query?.(state) ?? ""}`,
      sent,
      name.startsWith("page.") ? state["token"] : undefined
    )
    assert.oneOf(status, [200, 201], `${name}: ${text}`)
    state = { ...state, ...keep?.(data) }
  }
  return state
})
