import { assert } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import { layerLive } from "../support/process/layerLive.ts"
import { created, createdId, minimal, statusesOf } from "../support/http/Bodies.ts"
import * as HttpProbe from "../support/http/HttpProbe.ts"
import { fetchDocument, mismatches, type OpenApiDocument, operationOf } from "../support/http/JsonSchema.ts"
import type { Answer } from "../support/http/RawConnection.ts"
import { TestService, withoutTable } from "../support/http/TestService.ts"
import { lockTable, untilWaiting } from "../support/database/transactions.ts"

const create = ["post", "/api/v1/byok"] as const
const get = ["get", "/api/v1/byok/{id}"] as const

/** Where an answer is not as the document declares it for the operation and the status: body and headers. */
const undeclared = (document: OpenApiDocument, operation: readonly [string, string], answer: Answer) => {
  const declared = operationOf(document, operation).responses[String(answer.status)]
  if (declared === undefined) return [`${answer.status} is not declared`]
  const { schemas } = document.components
  return [
    ...mismatches(declared.content["application/json"].schema, JSON.parse(answer.body), schemas),
    ...Object.entries(declared.headers).flatMap(([name, { required, schema }]) => {
      const value = answer.headers[name.toLowerCase()]
      if (required === false && value === undefined) return []
      return mismatches(schema, schema.type === "integer" ? Number(value) : value, schemas, name)
    })
  ]
}

const requests = [
  { operation: create, status: 201, body: minimal },
  {
    operation: create,
    status: 201,
    body: { ...minimal, name: "é", allowed_models: [], declared_zdr: true, is_required: true }
  },
  { operation: create, status: 201, body: { provider: "fireworks", key: '{"api_key":"k","region":"eu"}' } },
  {
    operation: create,
    status: 201,
    body: { provider: "azure", key: "k", declared_region: "us", allowed_user_ids: ["u"] }
  },
  { operation: create, status: 400, body: {} },
  { operation: create, status: 400, body: { ...minimal, allowed_models: [1, 2] } },
  { operation: create, status: 400, body: { ...minimal, allowed_api_key_hashes: ["0".repeat(64)] } },
  { operation: create, status: 400, body: "{" },
  { operation: create, status: 400, body: "[]" },
  { operation: create, status: 401, body: minimal, key: "none" },
  { operation: create, status: 401, body: minimal, key: "unknown" },
  { operation: create, status: 403, body: minimal, key: "ordinary" },
  { operation: create, status: 413, body: "x".repeat(300_000) },
  { operation: get, status: 200, id: "own" },
  { operation: get, status: 401, id: "own", key: "none" },
  { operation: get, status: 401, id: "own", key: "unknown" },
  { operation: get, status: 403, id: "own", key: "ordinary" },
  { operation: get, status: 404, id: "foreign" },
  { operation: get, status: 404, id: "nonsense" }
] as const

layerLive(TestService.withDatabase({ queue: 1 }))("every answer matches the OpenAPI document (section 7)", (it) => {
  const keyOf = Effect.fnUntraced(function* (name: "none" | "ordinary" | "unknown" | "valid") {
    const tenant = yield* TestService.tenant
    return { none: "", unknown: "unknown", valid: tenant.management_key, ordinary: yield* tenant.ordinaryKey }[name]
  })

  const idOf = Effect.fnUntraced(function* (name: string) {
    if (name === "nonsense") return name
    const { create } = yield* name === "own" ? TestService.tenant : TestService.newTenant
    return createdId(yield* create(minimal))
  })

  /** Create and get were answered with this status, as they declare. */
  const assertDeclared = (
    document: OpenApiDocument,
    status: number,
    [created, found]: readonly [created: Answer, found: Answer]
  ) => {
    assert.deepStrictEqual(statusesOf([created, found]), [status, status])
    assert.deepStrictEqual([undeclared(document, create, created), undeclared(document, get, found)], [[], []])
  }

  it.effect.each(requests.map((request) => [request.status, request] as const))("%i: %j", ([status, request]) =>
    Effect.gen(function* () {
      const { url } = yield* TestService
      const document = yield* fetchDocument(url)
      const token = yield* keyOf("key" in request ? request.key : "valid")
      const answer =
        "id" in request
          ? yield* HttpProbe.get(url, token, yield* idOf(request.id))
          : yield* HttpProbe.create(url, token, request.body)
      assert.strictEqual(answer.status, status)
      assert.deepStrictEqual(undeclared(document, request.operation, answer), [])
    })
  )

  it.effect("201 again for a repeated create, 409 for a changed one, 400 for an invalid idempotency key (D1, D7)", () =>
    Effect.gen(function* () {
      const document = yield* fetchDocument((yield* TestService).url)
      const tenant = yield* TestService.tenant
      const under = (key: string, body: object) => tenant.create(body, [["Idempotency-Key", key]])
      const answers = [
        yield* under("once", minimal),
        yield* under("once", minimal),
        yield* under("once", { ...minimal, name: "n" }),
        yield* under("a b", minimal)
      ]
      assert.deepStrictEqual(
        answers.map(({ headers, status }) => [status, headers["idempotent-replayed"]]),
        [
          [201, undefined],
          [201, "true"],
          [409, undefined],
          [400, undefined]
        ]
      )
      for (const answer of answers) assert.deepStrictEqual(undeclared(document, create, answer), [])
    })
  )

  it.effect.each(["/health/live", "/health/ready"])("200: %s", (path) =>
    Effect.gen(function* () {
      const { url } = yield* TestService
      const answer = yield* HttpProbe.send(url, { path })
      assert.strictEqual(answer.status, 200)
      assert.deepStrictEqual(undeclared(yield* fetchDocument(url), ["get", path], answer), [])
    })
  )

  it.effect("500 for create and get without their table (D11)", () =>
    Effect.gen(function* () {
      const document = yield* fetchDocument((yield* TestService).url)
      const { create, get } = yield* TestService.tenant
      const answers = yield* withoutTable("api_keys", Effect.all([create(minimal), get("nonsense")]))
      assertDeclared(document, 500, answers)
    })
  )

  it.effect("503 for create and get while the queue is full (D14)", () =>
    Effect.gen(function* () {
      const { sql, url } = yield* TestService
      const document = yield* fetchDocument(url)
      const { create, get } = yield* TestService.tenant
      const release = yield* lockTable(sql, "api_keys")
      const waiting = yield* Effect.forkChild(create(minimal))
      yield* untilWaiting(sql, 1)
      const answers = yield* Effect.all([create(minimal), get("nonsense")])
      yield* release
      created(yield* Fiber.join(waiting))
      assertDeclared(document, 503, answers)
    })
  )

  it.effect("an answer with one field added, removed or changed does not match (control)", () =>
    Effect.gen(function* () {
      const document = yield* fetchDocument((yield* TestService).url)
      const answer = yield* (yield* TestService.tenant).create(minimal)
      const data = created(answer)
      const { label: _label, ...less } = data
      for (const other of [
        { ...data, key: "k" },
        less,
        { ...data, sort_order: "0" },
        { ...data, declared_region: "mars" }
      ]) {
        assert.isNotEmpty(undeclared(document, create, { ...answer, body: JSON.stringify({ data: other }) }))
      }
      assert.isNotEmpty(undeclared(document, create, { ...answer, headers: {} }))
    })
  )
})
