import { OpenApi } from "effect/http-api"
import { memberNames, members } from "../domain/Credential.ts"

const shown = {
  id: "019ad5a0-6c1e-7b3a-9f52-3a1c5d7e9b11",
  workspace_id: "019ad5a0-6c1d-7c44-8d10-5f0e2b4c6a88",
  provider: "openai",
  name: "Production",
  label: "sk-...AbCd",
  created_at: "2026-01-31T09:30:00.123Z",
  sort_order: 0
}
const credential = {
  ...Object.fromEntries(memberNames.map((name) => [name, "default" in members[name] ? members[name].default : null])),
  ...shown
}

const named = { credential_id: credential.id, name: credential.name, label: credential.label, section: "prioritized" }

const message = `${credential.id} (Production) forbids it for every model`

const planned = {
  workspace_id: credential.workspace_id,
  model: "openai/gpt-4o",
  host: "global",
  requires_zdr: false,
  strategy: "byok_first",
  steps: [{ kind: "own", provider: "openai", ...named, region: null, on_trial: false }],
  providers: [
    {
      provider: "openai",
      credentials: [{ ...named, position: 0, excluded: [] }],
      shared: { position: null, removed: [{ reason: "is_required", message, credential_id: credential.id }] }
    }
  ],
  retry_at: null
}

/** An example of what each operation takes and answers. */
const examples: Readonly<Record<string, { readonly request?: object; readonly answer: object }>> = {
  "byok.create": {
    request: { provider: "openai", key: "sk-your-provider-key", name: "Production" },
    answer: { data: credential }
  },
  "byok.list": { answer: { data: [credential], total_count: 1 } },
  "byok.plan": { request: { model: "openai/gpt-4o", targets: [{ provider: "openai" }] }, answer: { data: planned } },
  "byok.order": {
    request: { provider: "openai", ids: [credential.id] },
    answer: { data: { workspace_id: credential.workspace_id, provider: "openai", ids: [credential.id] } }
  },
  "byok.events": {
    answer: {
      data: [
        {
          id: "42.0",
          seq: 42,
          at: "2026-01-31T09:30:00.123Z",
          action: "credential.delete",
          workspace_id: credential.workspace_id,
          credential_id: credential.id,
          provider: "openai",
          label: credential.label,
          actor: {
            kind: "api_key",
            api_key_hash: "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
            name: "CI"
          }
        }
      ]
    }
  },
  "byok.get": { answer: { data: credential } },
  "byok.status": {
    answer: {
      data: {
        state: "parked",
        parked: [
          {
            model: null,
            cause: "quota_exhausted",
            since: "2026-01-31T09:30:00.000Z",
            until: "2026-01-31T10:30:00.000Z"
          }
        ],
        last_leased_at: "2026-01-31T09:30:00.123Z",
        last_succeeded_at: "2026-01-30T17:02:11.508Z",
        last_failed_at: "2026-01-31T09:30:00.456Z",
        last_failure: "quota_exhausted"
      }
    }
  },
  "byok.update": {
    request: { name: "Staging", disabled: true },
    answer: { data: { ...credential, name: "Staging", disabled: true } }
  },
  "byok.delete": { answer: { deleted: true } },
  "health.live": { answer: { status: "live" } },
  "health.ready": { answer: { status: "ready" } }
}

const seq = { type: "integer", minimum: 0 }

/** What the schemas do not say of parameters, whose numbers are text to them. */
const listed: Readonly<Record<string, { readonly description: string; readonly schema?: object }>> = {
  offset: {
    description: "How many credentials to skip.",
    schema: { type: "integer", minimum: 0, maximum: 2_147_483_647, default: 0 }
  },
  limit: {
    description: "How many elements a page has at most; of events, those of how many `seq`.",
    schema: { type: "integer", minimum: 1, maximum: 100, default: 50 }
  },
  workspace_id: { description: "Workspace of the credentials; the account's default workspace unless given." },
  provider: { description: "Only credentials of this provider." },
  credential_id: { description: "Only events of this credential, which may be deleted." },
  before: { description: "Only events before this `seq`.", schema: seq },
  after: { description: "Only events after this `seq`, the oldest first.", schema: seq },
  state: { description: "Only credentials in this state, as `status` answers it." },
  include: { description: "`status` adds the status of each credential; null if it was deleted meanwhile." },
  q: { description: "Only credentials whose name or label begins, or whose label ends, like this, in any case." }
}

const header = (description: string, schema: object = { type: "string" }) => ({ description, schema, required: true })

const requestId = header(
  "The id under which a failure is logged: the request's own `X-Request-Id` if well-formed, otherwise generated.",
  { type: "string", pattern: "^[A-Za-z0-9._-]{1,128}$" }
)
const challenge = header("The Bearer challenge.")

type Headers = Record<string, OpenApi.OpenAPISpecHeader>

/** What the envelope adds to the headers of an answer. */
const addedHeaders: Readonly<Record<string, Headers>> = {
  401: { "WWW-Authenticate": challenge },
  403: { "WWW-Authenticate": challenge },
  503: { "Retry-After": header("Seconds to wait.", { type: "integer", minimum: 0 }) }
}

const withExample = (body?: { content?: OpenApi.OpenApiSpecContent }, value?: object) =>
  Object.assign(body?.content?.["application/json"] ?? {}, { examples: { example: { value } } })

const titled = (header: string) => header.replace(/\b[a-z]/g, (letter) => letter.toUpperCase())

const described = <A extends { readonly schema: { readonly description?: string } }>(part: A) => ({
  description: part.schema.description,
  ...part
})

const complete = (operation: OpenApi.OpenAPISpecOperation) => {
  const { answer, request } = examples[operation.operationId] ?? {}
  if (request !== undefined) withExample(operation.requestBody, request)
  for (const parameter of operation.parameters) {
    const own = parameter.in === "header" ? { name: titled(parameter.name) } : listed[parameter.name]
    Object.assign(parameter, described(parameter), own)
  }
  for (const [status, response] of Object.entries(operation.responses)) {
    if (status.startsWith("2")) withExample(response, answer)
    const declared = Object.entries(response.headers ?? {}).map(([name, part]) => ({ [titled(name)]: described(part) }))
    response.headers = Object.assign({ "X-Request-Id": requestId }, addedHeaders[status], ...declared) as Headers
  }
}

/** Allows undeclared members (D13); types enumerated numbers, which are status codes, as integers (section 7). */
const refine = (_: string, node: unknown): unknown => {
  if (typeof node !== "object" || node === null || Array.isArray(node)) return node
  const { additionalProperties, ...rest } = node as Record<string, unknown>
  const refined = typeof additionalProperties === "object" ? { ...rest, additionalProperties } : rest
  return refined["type"] === "number" && "enum" in refined ? { ...refined, type: "integer" } : refined
}

export const operationsOf = ({ paths }: OpenApi.OpenAPISpec) =>
  Object.values(paths).flatMap((item) => Object.values(item as Record<string, OpenApi.OpenAPISpecOperation>))

/** Adds what the schemas cannot express: headers, examples and undeclared members. */
export const completeDocument = (document: object) => {
  const spec = JSON.parse(JSON.stringify(document).replaceAll('Encoded"', '"'), refine) as OpenApi.OpenAPISpec
  operationsOf(spec).forEach(complete)
  // Effect writes `Bearer`: the register of schemes, and what reads the document, write it small.
  Object.assign(spec.components.securitySchemes["management_key"] ?? {}, { scheme: "bearer" })
  return spec
}

export const openApiAnnotations = OpenApi.annotations({
  title: "BYOK provider credentials",
  version: "1.0.0",
  summary: "Stores provider keys brought by customers.",
  description: [
    "Create, list, change and delete provider credentials. The raw key goes in, is encrypted at rest and never comes out.",
    "",
    'Every failure is `{ "error": { "code", "message" } }`, where `code` repeats the status. An unknown route is 404;',
    "a known route with another method is 405, with `Allow`."
  ].join("\n"),
  servers: [{ url: "/" }],
  transform: completeDocument
})
