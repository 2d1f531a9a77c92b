import { OpenApi } from "effect/http-api"

const id = "019ad5a0-6c1e-7b3a-9f52-3a1c5d7e9b11"
const time = "2026-01-31T09:30:00.123Z"

/** Example values by member name. */
const exampleValues: Readonly<Record<string, unknown>> = {
  id,
  ids: [id],
  credential_id: id,
  workspace_id: "019ad5a0-6c1d-7c44-8d10-5f0e2b4c6a88",
  provider: "openai",
  name: "Production",
  label: "sk-...AbCd",
  sort_order: 0,
  total_count: 1,
  created_at: time,
  at: time,
  since: time,
  until: "2026-01-31T10:30:00.000Z",
  last_failed_at: time,
  last_failure: "quota_exhausted",
  state: "parked",
  cause: "quota_exhausted",
  seq: 42,
  action: "credential.rejected",
  actor: { kind: "gateway" },
  model: "openai/gpt-4o",
  position: 0,
  excluded: [],
  shared: {
    position: null,
    removed: [{ reason: "is_required", message: `${id} (Production) forbids it for every model`, credential_id: id }]
  }
}

/** The part of JSON Schema from which examples are built. */
interface Shape {
  readonly $ref?: string
  readonly type?: string
  readonly enum?: ReadonlyArray<unknown>
  readonly examples?: ReadonlyArray<unknown>
  readonly anyOf?: ReadonlyArray<Shape>
  readonly items?: Shape
  readonly properties?: Readonly<Record<string, Shape>>
  readonly required?: ReadonlyArray<string>
}

/**
 * Builds an example of a schema: null if it may be null, the first value if it lists any, false for a boolean,
 * otherwise the name of its type. A list has one element. An object has its required members and those named in
 * `exampleValues`; the value of each is its schema's own example, else that of `exampleValues`, else one built.
 */
const exampleOf = (spec: OpenApi.OpenAPISpec, shape: Shape): unknown => {
  const { $ref, anyOf, enum: allowed, items, properties, required, type } = shape
  if ($ref !== undefined) return exampleOf(spec, spec.components.schemas[$ref.split("/").at(-1) ?? ""] as Shape)
  if (anyOf !== undefined) return anyOf.some((one) => one.type === "null") ? null : exampleOf(spec, anyOf[0] ?? {})
  if (allowed !== undefined) return allowed[0]
  if (items !== undefined) return [exampleOf(spec, items)]
  if (properties === undefined) return type === "boolean" ? false : type
  const members = Object.entries(properties).filter(
    ([name]) => required?.includes(name) === true || name in exampleValues
  )
  return Object.fromEntries(
    members.map(([name, member]) => [name, member.examples?.[0] ?? exampleValues[name] ?? exampleOf(spec, member)])
  )
}

/** Example request bodies by operation. */
const exampleRequests: Readonly<Record<string, object>> = {
  "byok.create": { provider: "openai", key: "sk-example-0123456789-AbCd", name: "Production" },
  "byok.plan": { model: "openai/gpt-4o", targets: [{ provider: "openai" }] },
  "byok.order": { provider: "openai", ids: [id] },
  "byok.update": { name: "Production", disabled: false }
}

/** Descriptions of query parameters; for numbers also the schema, because the contract decodes them from strings. */
const queryParameters: Readonly<Record<string, { readonly description: string; readonly schema?: object }>> = {
  offset: {
    description: "How many credentials to skip.",
    schema: { type: "integer", minimum: 0, maximum: 2_147_483_647, default: 0 }
  },
  limit: {
    description: "Maximum number of elements on a page; for events, of transactions on one credential.",
    schema: { type: "integer", minimum: 1, maximum: 100, default: 50 }
  },
  workspace_id: { description: "Workspace of the credentials; by default, the account's default workspace." },
  provider: { description: "Only credentials of this provider." },
  credential_id: { description: "Only events of this credential, which may be deleted." },
  before: { description: "Only events before that with this `id`, the newest first." },
  after: { description: "Only events after that with this `id`, the oldest first; with 0, from the first." },
  state: { description: "Only credentials in this state." },
  include: { description: "`status` adds the status of each credential; null if it was deleted meanwhile." },
  q: {
    description: "Only credentials whose name or label begins, or whose label ends, with this text, ignoring case."
  },
  unused_for: {
    description: "Only credentials that are as old as this many days, such as `90d`, and that no attempt used since.",
    schema: { type: "string", pattern: "^[1-9][0-9]{0,3}d$" }
  }
}

const header = (description: string, schema: object = { type: "string" }) => ({ description, schema, required: true })

const requestId = header(
  "The id under which a failure is logged: the request's `X-Request-Id` if well-formed, otherwise a new one.",
  { type: "string", pattern: "^[A-Za-z0-9._-]{1,128}$" }
)
const challenge = header("The Bearer challenge.")

type Headers = Record<string, OpenApi.OpenAPISpecHeader>

/** Headers of responses by status, besides `X-Request-Id` and those that the contract declares. */
const headersByStatus: Readonly<Record<string, Headers>> = {
  401: { "WWW-Authenticate": challenge },
  403: { "WWW-Authenticate": challenge },
  503: { "Retry-After": header("Seconds to wait.", { type: "integer", minimum: 0 }) }
}

const addExample = (body: { content?: OpenApi.OpenApiSpecContent } | undefined, make: (shape: Shape) => unknown) => {
  const json = body?.content?.["application/json"]
  if (json !== undefined) Object.assign(json, { examples: { example: { value: make(json.schema as Shape) } } })
}

/** Capitalizes each word of a header's name, as in `Retry-After`. */
const titleCase = (name: string) => name.replace(/\b[a-z]/g, (letter) => letter.toUpperCase())

/** Gives a parameter or header the description of its schema, unless it has its own. */
const withDescription = <A extends { readonly schema: { readonly description?: string } }>(part: A) => ({
  description: part.schema.description,
  ...part
})

const completeOperation = (spec: OpenApi.OpenAPISpec) => (operation: OpenApi.OpenAPISpecOperation) => {
  addExample(operation.requestBody, () => exampleRequests[operation.operationId])
  for (const parameter of operation.parameters) {
    const details = parameter.in === "header" ? { name: titleCase(parameter.name) } : queryParameters[parameter.name]
    Object.assign(parameter, withDescription(parameter), details)
  }
  for (const [status, response] of Object.entries(operation.responses)) {
    if (status.startsWith("2")) addExample(response, (shape) => exampleOf(spec, shape))
    const declared = Object.entries(response.headers ?? {}).map(([name, part]) => ({
      [titleCase(name)]: withDescription(part)
    }))
    response.headers = Object.assign({ "X-Request-Id": requestId }, headersByStatus[status], ...declared) as Headers
  }
}

/** A reviver for `JSON.parse` that allows undeclared members (D13) and types status codes as integers (section 7). */
const refineNode = (_: string, node: unknown): unknown => {
  if (typeof node !== "object" || node === null || Array.isArray(node)) return node
  const { additionalProperties, ...rest } = node as Record<string, unknown>
  const refined = typeof additionalProperties === "object" ? { ...rest, additionalProperties } : rest
  return refined["type"] === "number" && "enum" in refined ? { ...refined, type: "integer" } : refined
}

/** All operations of a document. */
export const operationsOf = ({ paths }: OpenApi.OpenAPISpec) =>
  Object.values(paths).flatMap((item) => Object.values(item as Record<string, OpenApi.OpenAPISpecOperation>))

/** Adds what Effect's document lacks (descriptions, headers and examples), and allows undeclared members. */
export const completeDocument = (document: object) => {
  // Effect names the schemas of bodies `…Encoded`.
  const spec = JSON.parse(JSON.stringify(document).replaceAll('Encoded"', '"'), refineNode) as OpenApi.OpenAPISpec
  operationsOf(spec).forEach(completeOperation(spec))
  // Effect writes `Bearer`, but readers of the document expect lowercase, as in the registry of schemes.
  Object.assign(spec.components.securitySchemes["management_key"] ?? {}, { scheme: "bearer" })
  return spec
}

/** Makes the account a parameter of paths whose operations declare none: Effect leaves `:account_id` in these. */
export const withAccountParameter = (document: object) => {
  const { paths, ...rest } = document as OpenApi.OpenAPISpec
  const account = { name: "account_id", in: "path", required: true, schema: { type: "string", format: "uuid" } }
  const complete = Object.entries(paths).map(([path, item]) =>
    path.includes(":account_id")
      ? [path.replace(":account_id", "{account_id}"), { parameters: [account], ...item }]
      : [path, item]
  )
  return { ...rest, paths: Object.fromEntries(complete) as OpenApi.OpenAPISpec["paths"] }
}

/** Annotations of the tenants' API. */
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
