import { createHash } from "node:crypto"
import Fastify from "fastify"
import { Provider } from "../../../src/domain/Provider.ts"
import { type Body, isAcceptable } from "./credential.ts"

/** The result of looking up an API key. */
export interface Caller {
  readonly account_id: string
  readonly role: string
  /** The default workspace, if the same statement reads it. */
  readonly workspace_id?: string | null
}

/** The members of an update. */
export type Changes = Readonly<Partial<Omit<Body, "key" | "provider" | "workspace_id">>>

export interface Page {
  readonly data: ReadonlyArray<object>
  readonly total_count: number
}

/** The operations of a peer on its database. */
export interface Store {
  readonly findKey: (hash: Buffer) => Promise<Caller | undefined>
  readonly find: (id: string, caller: Caller) => Promise<object | undefined>
  /** Undefined if the account has no default workspace. */
  readonly insert: (body: Body, caller: Caller) => Promise<object | undefined>
  readonly list?: (offset: number, limit: number, caller: Caller) => Promise<Page>
  readonly update?: (id: string, changes: Changes, caller: Caller) => Promise<object | undefined>
}

declare module "fastify" {
  export interface FastifyRequest {
    caller: Caller
  }
}

const failure = (code: number, message: string) => ({ error: { code, message } })

const bearer = /^Bearer (.+)$/i

const nullable = (schema: object) => ({ anyOf: [schema, { type: "null" }] })
const strings = nullable({ type: "array", items: { type: "string" }, maxItems: 100 })
const changeable = {
  name: nullable({ type: "string", maxLength: 255 }),
  allowed_api_key_hashes: nullable({
    type: "array",
    items: { type: "string", pattern: "^[a-f0-9]{64}$" },
    minItems: 1,
    maxItems: 100
  }),
  allowed_models: strings,
  allowed_user_ids: strings,
  declared_region: { enum: ["global", "europe", "us", null] },
  declared_zdr: nullable({ type: "boolean" }),
  disabled: { type: "boolean" },
  is_required: { type: "boolean" },
  is_fallback: { type: "boolean" },
  is_byok_only: { type: "boolean" }
}
const changesSchema = { type: "object", properties: changeable }
const bodySchema = {
  type: "object",
  required: ["key", "provider"],
  properties: {
    key: { type: "string", minLength: 1 },
    provider: { type: "string", enum: Provider.literals },
    workspace_id: { type: "string", format: "uuid" },
    ...changeable
  }
}

const text = { type: "string" }
const flag = { type: "boolean" }
const textOrNull = { type: "string", nullable: true }
const textsOrNull = { type: "array", items: text, nullable: true }
const credentialSchema = {
  type: "object",
  properties: {
    id: text,
    workspace_id: text,
    provider: text,
    name: textOrNull,
    label: text,
    created_at: { type: "string", format: "date-time" },
    disabled: flag,
    is_fallback: flag,
    is_required: flag,
    is_byok_only: flag,
    allowed_api_key_hashes: textsOrNull,
    allowed_models: textsOrNull,
    allowed_user_ids: textsOrNull,
    declared_region: textOrNull,
    declared_zdr: { type: "boolean", nullable: true },
    sort_order: { type: "integer" }
  }
}
const answerSchema = { type: "object", properties: { data: credentialSchema } }
const pageSchema = {
  type: "object",
  properties: { data: { type: "array", items: credentialSchema }, total_count: { type: "integer" } }
}
const idSchema = { type: "object", properties: { id: { type: "string", format: "uuid" } } }
const pageQuery = {
  type: "object",
  properties: {
    offset: { type: "integer", minimum: 0, default: 0 },
    limit: { type: "integer", minimum: 1, maximum: 100, default: 50 }
  }
}

/** Serves the operations of a store with Fastify 5, its validation and its serialisation. */
export const serve = async (store: Store) => {
  const app = Fastify({ bodyLimit: 256 * 1024, logger: false })
  app.decorateRequest("caller")
  app.addHook("onRequest", async (request, reply) => {
    const token = bearer.exec(request.headers.authorization ?? "")?.[1]
    if (token === undefined) return reply.code(401).send(failure(401, "Missing Authentication header"))
    const caller = await store.findKey(createHash("sha256").update(token).digest())
    if (caller === undefined) return reply.code(401).send(failure(401, "Invalid API key"))
    if (caller.role !== "management")
      return reply.code(403).send(failure(403, "Only management keys can perform this operation"))
    request.caller = caller
    reply.header("cache-control", "no-store").header("x-request-id", request.id)
  })

  app.get<{ Params: { id: string } }>(
    "/api/v1/byok/:id",
    { schema: { params: idSchema, response: { 200: answerSchema } } },
    async (request, reply) => {
      const data = await store.find(request.params.id, request.caller)
      if (data === undefined) return reply.code(404).send(failure(404, "Resource not found"))
      return { data }
    }
  )

  app.post<{ Body: Body }>(
    "/api/v1/byok",
    { schema: { body: bodySchema, response: { 201: answerSchema } } },
    async (request, reply) => {
      const data = isAcceptable(request.body) ? await store.insert(request.body, request.caller) : undefined
      if (data === undefined) return reply.code(400).send(failure(400, "Invalid request parameters"))
      return reply.code(201).send({ data })
    }
  )

  const { list, update } = store
  if (list !== undefined) {
    app.get<{ Querystring: { offset: number; limit: number } }>(
      "/api/v1/byok",
      { schema: { querystring: pageQuery, response: { 200: pageSchema } } },
      ({ caller, query: { limit, offset } }) => list(offset, limit, caller)
    )
  }
  if (update !== undefined) {
    app.patch<{ Params: { id: string }; Body: Changes }>(
      "/api/v1/byok/:id",
      { schema: { params: idSchema, body: changesSchema, response: { 200: answerSchema } } },
      async (request, reply) => {
        const data = await update(request.params.id, request.body, request.caller)
        if (data === undefined) return reply.code(404).send(failure(404, "Resource not found"))
        return { data }
      }
    )
  }

  await app.listen({ host: "127.0.0.1", port: Number(process.env["PORT"]) })
}
