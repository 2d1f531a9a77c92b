import { toIncomingMessage } from "@effect/platform-node/NodeHttpServerRequest"
import { Effect, Redacted, Schema } from "effect"
import type { HttpServerRequest } from "effect/http"
import { decoderOf, NonEmptyShortText } from "../domain/checkInput.ts"
import { Unauthorized } from "../domain/Errors.ts"
import { WorkspaceId } from "../domain/Identifiers.ts"
import { RequestedProvider } from "../domain/Provider.ts"
import { Region } from "../domain/Region.ts"
import { isRepeated } from "../http/RequestHead.ts"
import { hashApiKey } from "../runtime/ApiKey.ts"
import type { Report } from "../service/routing/Attempts.ts"

/** The model of requests that name none. Only keys without `allowed_models` serve it. */
const noModel = "(none)"

/** Whether a text has no control characters and was well-formed UTF-8. */
const isPlain = (text: string) => !/[\p{Cc}\uFFFD]/u.test(text)

const Plain = NonEmptyShortText.check(Schema.makeFilter(isPlain, { message: "must have no control characters" }))

const optional = {
  "X-Byok-Workspace": Schema.optionalKey(WorkspaceId.annotate({ message: "must be a UUID" })),
  "X-Byok-User": Schema.optionalKey(Plain),
  "X-Byok-Host": Schema.optionalKey(Region.annotate({ message: "must be global, europe or us" })),
  "X-Byok-Status": Schema.optionalKey(Plain),
  "X-Byok-Retry-After": Schema.optionalKey(Plain)
}
const decodeHeaders = decoderOf(Schema.Struct(optional))
const decodeTarget = decoderOf(
  Schema.Struct({
    provider: RequestedProvider,
    model: Plain
  })
)

type Headers = HttpServerRequest.HttpServerRequest["headers"]

/** A header as UTF-8, which Node decodes as Latin-1; undefined if it is absent or empty. */
const textOf = (headers: Headers, name: string) => {
  const value = headers[name.toLowerCase()]
  return value === undefined || value === "" ? undefined : Buffer.from(value, "latin1").toString("utf8")
}

const definedOf = (members: Readonly<Record<string, string | null | undefined>>) =>
  Object.fromEntries(
    Object.entries(members).filter(([, value]) => value !== undefined && value !== null && value !== "")
  )

/** The hash of the API key that a caller sends as clients of providers do. */
export const apiKeyHashOf = Effect.fnUntraced(function* (request: HttpServerRequest.HttpServerRequest) {
  const { headers } = request
  if (isRepeated(toIncomingMessage(request), "authorization")) {
    return yield* Unauthorized.missing("must be sent once, but was sent more often")
  }
  const [, bearer] = /^bearer +(\S+)$/i.exec(headers["authorization"] ?? "") ?? []
  const key = [bearer, headers["x-api-key"], headers["api-key"], headers["x-goog-api-key"]].find(Boolean)
  return key === undefined ? yield* Unauthorized.missing() : hashApiKey(Redacted.make(key), "latin1")
})

/** The provider of the path and the model. */
export const targetOf = ({ provider, query }: ForwardPath, headers: Headers) =>
  decodeTarget({ provider, model: query.get("model") || textOf(headers, "X-Byok-Model") || noModel })

/** The provider that a path names, and the query. */
export interface ForwardPath {
  readonly provider: string | undefined
  readonly query: URLSearchParams
}

/** The status that `?deny` gives every denial; undefined without one. */
export const denyStatusOf = ({ query }: ForwardPath) => {
  const deny = query.get("deny")
  return deny !== null && /^4\d\d$/.test(deny) ? Number(deny) : undefined
}

/** Whether the proxy never reports success, so that no key may wait for that. */
export const reportsRefusalsOnly = ({ query }: ForwardPath) => query.get("reports") === "refusals"

/** What the proxy says of its request, and the result of an attempt, if it had one. */
export const reportOf = Effect.fnUntraced(function* (headers: Headers) {
  const texts = Object.keys(optional).map((name) => [name, textOf(headers, name)] as const)
  const said = yield* decodeHeaders(definedOf(Object.fromEntries(texts)))
  const workspace_id = said["X-Byok-Workspace"]
  const options = {
    user_id: said["X-Byok-User"] ?? null,
    host: said["X-Byok-Host"] ?? "global",
    requires_zdr: false,
    strategy: "byok_first",
    keys: "tokens",
    ...(workspace_id === undefined ? {} : { workspace_id })
  } as const
  const attempt = headers["x-byok-attempt"]
  // A proxy that tried several upstreams names all of their statuses.
  const [status = null] = said["X-Byok-Status"]?.match(/\d+(?=\D*$)/) ?? []
  const after: (Report & { readonly status: number | null }) | undefined = attempt
    ? { attempt, status: status === null ? null : Number(status), retry_after: said["X-Byok-Retry-After"] ?? null }
    : undefined
  return { options, after }
})
