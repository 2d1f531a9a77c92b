import { OpenApi } from "effect/http-api"

const credential = {
  id: "019ad5a0-6c1e-7b3a-9f52-3a1c5d7e9b11",
  workspace_id: "019ad5a0-6c1d-7c44-8d10-5f0e2b4c6a88",
  provider: "openai",
  name: "Production",
  label: "sk-...AbCd",
  created_at: "2026-01-31T09:30:00.123Z",
  disabled: false,
  is_fallback: false,
  is_required: false,
  is_byok_only: false,
  allowed_api_key_hashes: null,
  allowed_models: null,
  allowed_user_ids: null,
  declared_region: null,
  declared_zdr: null,
  sort_order: 0
}

const named = { credential_id: credential.id, name: credential.name, label: credential.label }

const planned = {
  workspace_id: credential.workspace_id,
  model: "openai/gpt-4o",
  host: "global",
  requires_zdr: false,
  strategy: "byok_first",
  steps: [
    {
      kind: "own",
      provider: "openai",
      section: "prioritized",
      ...named,
      region: null,
      on_trial: false
    }
  ],
  providers: [
    {
      provider: "openai",
      credentials: [
        {
          ...named,
          section: "prioritized",
          position: 0,
          excluded: []
        }
      ],
      shared: {
        position: null,
        removed: [
          {
            reason: "is_required",
            message: `${credential.id} (Production) forbids it for every model`,
            credential_id: credential.id
          }
        ]
      }
    }
  ],
  retry_at: null
}

const requestId = {
  description:
    "The id under which a failure is logged: the request's own `X-Request-Id` if well-formed, otherwise generated.",
  schema: { type: "string", pattern: "^[A-Za-z0-9._-]{1,128}$" }
}

const replayed = {
  description: "Sent if an earlier request created the credential: this one stored nothing.",
  required: false,
  schema: { type: "string", enum: ["true"] }
}

const headersOf = (status: string) => ({
  "X-Request-Id": requestId,
  ...(status === "201" ? { "Idempotent-Replayed": replayed } : {}),
  ...(status === "401" || status === "403"
    ? { "WWW-Authenticate": { description: "The Bearer challenge.", schema: { type: "string" } } }
    : {}),
  ...(status === "503"
    ? { "Retry-After": { description: "Seconds to wait.", schema: { type: "integer", minimum: 0 } } }
    : {})
})

/**
 * Allows undeclared members, which the service ignores in requests and clients must ignore in responses (D13), and
 * types the enumerated numbers, which are status codes, as integers (section 7).
 */
const refine = <A>(node: A): A => {
  if (Array.isArray(node)) return node.map(refine) as A
  if (typeof node !== "object" || node === null) return node
  const entries = Object.entries(node).filter(
    ([name, value]) => name !== "additionalProperties" || typeof value !== "boolean"
  )
  const refined: Record<string, unknown> = Object.fromEntries(entries.map(([name, value]) => [name, refine(value)]))
  return (refined["type"] === "number" && "enum" in refined ? { ...refined, type: "integer" } : refined) as A
}

const json = (content: object, example: object) => ({
  "application/json": { ...(Reflect.get(content, "application/json") as object), example }
})

const withHeaders = (responses: OpenApi.OpenAPISpecResponses) =>
  Object.fromEntries(
    Object.entries(responses).map(([status, response]) => [status, { ...response, headers: headersOf(status) }])
  )

/** What each operation answers when it succeeds, with examples of what it takes and answers. */
const operations: Readonly<
  Record<string, { status: "200" | "201"; description: string; example: object; request?: object }>
> = {
  "byok.create": {
    status: "201",
    description: "The credential was created.",
    example: { data: credential },
    request: { provider: "openai", key: "sk-your-provider-key", name: "Production" }
  },
  "byok.list": {
    status: "200",
    description: "A page of credentials.",
    example: { data: [credential], total_count: 1 }
  },
  "byok.plan": {
    status: "200",
    description: "The plan, with a verdict on every credential and on shared capacity.",
    example: { data: planned },
    request: { model: "openai/gpt-4o", targets: [{ provider: "openai" }] }
  },
  "byok.get": { status: "200", description: "The credential.", example: { data: credential } },
  "byok.status": {
    status: "200",
    description: "The status.",
    example: {
      data: {
        state: "parked",
        parked: [{ model: null, cause: "quota_exhausted", until: "2026-01-31T10:30:00.000Z" }],
        last_leased_at: "2026-01-31T09:30:00.123Z",
        last_succeeded_at: "2026-01-30T17:02:11.508Z",
        last_failed_at: "2026-01-31T09:30:00.456Z",
        last_failure: "quota_exhausted"
      }
    }
  },
  "byok.update": {
    status: "200",
    description: "The credential as it is now.",
    example: { data: { ...credential, name: "Staging", disabled: true } },
    request: { name: "Staging", disabled: true }
  },
  "byok.delete": { status: "200", description: "The credential was deleted.", example: { deleted: true } }
}

/** What the schemas of parameters cannot express: a number in a query is text to them. */
const parameters: Readonly<Record<string, object>> = {
  "idempotency-key": { name: "Idempotency-Key", description: "Makes the request safe to retry." },
  id: { description: "Identifier of the credential." },
  offset: {
    description: "How many credentials to skip.",
    schema: { type: "integer", minimum: 0, maximum: 2_147_483_647, default: 0 }
  },
  limit: {
    description: "How many credentials a page has at most.",
    schema: { type: "integer", minimum: 1, maximum: 100, default: 50 }
  },
  workspace_id: { description: "Workspace of the credentials; the account's default workspace unless given." },
  provider: { description: "Only credentials of this provider." },
  state: { description: "Only credentials in this state, as `status` answers it." },
  q: { description: "Only credentials whose name or label begins like this, in any case." }
}

const completeOperation = (operation: OpenApi.OpenAPISpecOperation) => {
  const known = operations[operation.operationId]
  if (known === undefined) throw new Error(`${operation.operationId} has no example`)
  const { description, example, request, status } = known
  const responses: Record<string, object> = withHeaders(operation.responses)
  const declared = operation.responses[Number(status)]
  responses[status] = { ...responses[status], description, content: json(declared?.content ?? {}, example) }
  return {
    ...operation,
    responses,
    parameters: operation.parameters.map((parameter) => ({ ...parameter, ...parameters[parameter.name] })),
    ...(operation.requestBody &&
      request && {
        requestBody: {
          ...operation.requestBody,
          description: "JSON of at most 256 KiB.",
          content: json(operation.requestBody.content, request)
        }
      })
  }
}

const probe = (name: string, summary: string, description: string, failures: OpenApi.OpenAPISpecResponses = {}) => {
  const status = { type: "string", enum: [name] }
  const schema = { type: "object", properties: { status }, required: ["status"] }
  const success = { description: `The service is ${name}.`, content: { "application/json": { schema } } }
  return {
    get: {
      operationId: `health.${name}`,
      tags: ["health"],
      summary,
      description,
      security: [],
      parameters: [],
      responses: withHeaders({ 200: success, ...failures })
    }
  }
}

const probes = (unavailable: OpenApi.OpenAPISpecResponses[503]) => {
  const notReady = { ...unavailable, description: "Something keeps the service from working; the log says what." }
  return {
    "/health/live": probe("live", "Check that the process runs", "For probes. It needs no key and asks no database."),
    "/health/ready": probe(
      "ready",
      "Check that requests can be served",
      "For probes and load balancers. It needs no key.",
      { 503: notReady }
    )
  }
}

/** Adds what the schemas cannot express: headers, examples, undeclared members and the routes for probes. */
const complete = (document: object) => {
  const named = JSON.parse(JSON.stringify(document).replaceAll('Encoded"', '"')) as OpenApi.OpenAPISpec
  const spec = refine(named)
  const paths = Object.entries(spec.paths as Record<string, Record<string, OpenApi.OpenAPISpecOperation>>).map(
    ([path, item]) => {
      const completed = Object.entries(item).map(([method, operation]) => [method, completeOperation(operation)])
      return [path, Object.fromEntries(completed) as object] as const
    }
  )
  const unavailable = spec.paths["/api/v1/byok"]?.post?.responses[503]
  if (unavailable === undefined) throw new Error("create declares no 503")
  const tags = [...spec.tags, { name: "health", description: "For probes." }]
  return { ...spec, tags, paths: { ...Object.fromEntries(paths), ...probes(unavailable) } }
}

/** Title, description and completion of the OpenAPI document. */
export const openApiAnnotations = OpenApi.annotations({
  title: "BYOK provider credentials",
  version: "2.0.0",
  summary: "Stores provider keys brought by customers.",
  description: [
    "Create, list, change and delete provider credentials. The raw key goes in, is encrypted at rest and never comes out.",
    "",
    'Every failure is `{ "error": { "code", "message" } }`, where `code` repeats the status. An unknown route is 404;',
    "a known route with another method is 405, with `Allow`."
  ].join("\n"),
  servers: [{ url: "/" }],
  transform: complete
})
