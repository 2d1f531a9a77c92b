import { createConfig, lintFromString } from "@redocly/openapi-core"
import { Effect } from "effect"
import { Credential } from "../../src/domain/Credential.ts"
import { assert, layerLive } from "../support/it.ts"
import { created, defaults, minimal } from "../support/http/Bodies.ts"
import { send } from "../support/http/HttpProbe.ts"
import {
  contract,
  type JsonSchema,
  mismatches,
  type OpenApiDocument,
  operationOf,
  undeclared
} from "../support/http/JsonSchema.ts"
import { assertHeaders, envelope, type Refusal, refusals } from "../support/http/Refusal.ts"
import { TestService } from "../support/http/TestService.ts"

const create = ["post", "/api/v1/byok"] as const
const list = ["get", "/api/v1/byok"] as const
const get = ["get", "/api/v1/byok/{id}"] as const
const update = ["patch", "/api/v1/byok/{id}"] as const
const remove = ["delete", "/api/v1/byok/{id}"] as const
const plan = ["post", "/api/v1/byok/plan"] as const
const status = ["get", "/api/v1/byok/{id}/status"] as const
const order = ["put", "/api/v1/byok/order"] as const
const events = ["get", "/api/v1/byok/events"] as const
const operations = [create, list, plan, order, events, get, status, update, remove]

const fields = [
  ...["key", "provider", "name", "workspace_id", "allowed_api_key_hashes", "allowed_models", "allowed_user_ids"],
  ...["declared_region", "declared_zdr", "disabled", "is_required", "is_fallback", "is_byok_only"]
]

const document = Effect.map(
  TestService.send({ path: "/openapi.json" }),
  ({ body }) => JSON.parse(body) as OpenApiDocument
)

const errorsOf = (source: string) =>
  Effect.promise(async () => {
    const config = await createConfig({ extends: ["recommended"] })
    const problems = await lintFromString({ source, absoluteRef: "openapi.json", config })
    return problems.filter(({ severity }) => severity === "error").map(({ message, ruleId }) => `${ruleId}: ${message}`)
  })

/** Bodies at and over every limit of section 8, with whether the limit allows them. */
const limits: ReadonlyArray<readonly [limit: string, change: object, allowed: boolean]> = [
  ["a key of 1 character", { key: "k" }, true],
  ["an empty key", { key: "" }, false],
  ["a name of 255 characters", { name: "𝒦".repeat(255) }, true],
  ["a name of 256 characters", { name: "a".repeat(256) }, false],
  ["1 API key hash", { allowed_api_key_hashes: ["0".repeat(64)] }, true],
  ["an empty list of API key hashes", { allowed_api_key_hashes: [] }, false],
  ["100 API key hashes", { allowed_api_key_hashes: Array.from({ length: 100 }, () => "a".repeat(64)) }, true],
  ["101 API key hashes", { allowed_api_key_hashes: Array.from({ length: 101 }, () => "a".repeat(64)) }, false],
  ["an API key hash in capitals", { allowed_api_key_hashes: ["A".repeat(64)] }, false],
  ["an API key hash of 63 digits", { allowed_api_key_hashes: ["a".repeat(63)] }, false],
  ["an empty list of models", { allowed_models: [] }, true],
  ["100 models", { allowed_models: Array.from({ length: 100 }, () => "m") }, true],
  ["101 models", { allowed_models: Array.from({ length: 101 }, () => "m") }, false],
  ["101 users", { allowed_user_ids: Array.from({ length: 101 }, () => "u") }, false],
  ["an unknown provider", { provider: "nobody" }, false],
  ["an unknown region", { declared_region: "mars" }, false],
  [
    "null for name, models, region and ZDR",
    { name: null, allowed_models: null, declared_region: null, declared_zdr: null },
    true
  ],
  ["null for disabled", { disabled: null }, false],
  ["null for workspace_id", { workspace_id: null }, false],
  ["a workspace_id that is no UUID", { workspace_id: "default" }, false],
  ["a workspace_id in capitals", { workspace_id: "019AD5A0-6C1E-7B3A-9F52-3A1C5D7E9B11" }, true],
  ["a workspace_id of zeros only", { workspace_id: "00000000-0000-0000-0000-000000000000" }, true],
  ["a workspace_id of the digit f only", { workspace_id: "ffffffff-ffff-ffff-ffff-ffffffffffff" }, true]
]

/** The errors that every operation may answer with. */
const common: ReadonlyArray<Refusal> = [
  ...(["MissingKey", "InvalidKey", "Forbidden", "RequestTimeout", "ExpectationFailed", "HeadersTooLarge"] as const),
  ...(["InternalError", "ServiceUnavailable"] as const)
]

/** The errors that each operation may answer with. */
const errors: ReadonlyArray<
  readonly [operation: readonly [method: string, path: string], refusals: ReadonlyArray<Refusal>]
> = [
  [create, [...common, "InvalidParams", "Conflict", "CredentialDeleted", "PayloadTooLarge"]],
  [list, [...common, "InvalidParams"]],
  [plan, [...common, "InvalidParams", "PayloadTooLarge"]],
  [order, [...common, "InvalidParams", "PayloadTooLarge"]],
  [events, [...common, "InvalidParams"]],
  [get, [...common, "NotFound"]],
  [status, [...common, "NotFound"]],
  [update, [...common, "InvalidParams", "NotFound", "StoredKeyUnreadable", "PayloadTooLarge"]],
  [remove, [...common, "NotFound"]]
]

layerLive(TestService.layer)("/openapi.json", (it) => {
  it.effect("is OpenAPI 3.1 without an error under the linter's recommended rules", function* () {
    const { url } = yield* TestService
    const answer = yield* send(url, { path: "/openapi.json" })
    assert.strictEqual(answer.status, 200)
    assertHeaders(answer)
    assert.deepStrictEqual(JSON.parse(answer.body), contract)
    assert.match(contract.openapi, /^3\.1\./)
    assert.deepStrictEqual(yield* errorsOf(answer.body), [])
  })

  it.effect("fails the linter without its security scheme (control)", function* () {
    const { components, ...rest } = yield* document
    const broken = { ...rest, components: { schemas: components.schemas } }
    assert.include((yield* errorsOf(JSON.stringify(broken))).join(), "security-defined")
  })

  it.effect(
    "has the nine operations, each described and with a management key as bearer token, and two probes (sections 4 and 5)",
    function* () {
      const found = yield* document
      const listed = Object.entries(found.paths).flatMap(([path, item]) =>
        Object.keys(item).map((method) => [method, path])
      )
      assert.sameDeepMembers(listed, [
        ...operations.map((operation) => [...operation]),
        ["get", "/health/live"],
        ["get", "/health/ready"]
      ])
      const [[name, scheme] = ["", { type: "", scheme: "" }], ...others] = Object.entries(
        found.components.securitySchemes
      )
      assert.lengthOf(others, 0)
      assert.strictEqual(`${scheme.type} ${scheme.scheme.toLowerCase()}`, "http bearer")
      for (const operation of operations) {
        const { description, operationId, responses, security, summary } = operationOf(found, operation)
        assert.deepStrictEqual(security, [{ [name]: [] }])
        for (const text of [summary, description, operationId]) assert.isAbove(text.length, 5)
        for (const [status, response] of Object.entries(responses))
          assert.isAbove(response.description.length, 5, status)
      }
    }
  )

  it.effect("declares the idempotency key of create as an optional header, with its form", function* () {
    const [parameter, ...others] = operationOf(yield* document, create).parameters
    assert.lengthOf(others, 0)
    const { description, schema, ...rest } = parameter ?? assert.fail("no parameter")
    assert.deepStrictEqual<object>(rest, { name: "Idempotency-Key", in: "header", required: false })
    assert.isAbove(description.length, 10)
    for (const [key, allowed] of [
      ["k", true],
      ["!~".repeat(127), true],
      ["k".repeat(255), true],
      ["", false],
      ["k".repeat(256), false],
      ["a b", false],
      ["ä", false]
    ] as const) {
      assert.strictEqual(mismatches(schema, key, (yield* document).components.schemas).length === 0, allowed, key)
    }
  })

  it.effect("has the members of an update, none of them required and none with a default (L1)", function* () {
    const { components } = yield* document
    const { properties = {}, required = [] } = components.schemas["CredentialChanges"] ?? {}
    assert.sameMembers(
      Object.keys(properties),
      fields.filter((field) => field !== "provider" && field !== "workspace_id")
    )
    assert.isEmpty(required)
    assert.match(JSON.stringify(properties["key"]), /A new key of these sets declared_region/)
    for (const [field, schema] of Object.entries(properties)) {
      assert.isTrue(described(schema), field)
      assert.notProperty(schema, "default", field)
    }
  })

  const described = (schema?: JsonSchema): boolean =>
    (schema?.description ?? "").length > 10 || schema?.allOf?.some(described) === true

  it.effect("describes every field of the credential, all of them always present (section 2.1)", function* () {
    const { components } = yield* document
    const { properties = {}, required } = components.schemas["Credential"] ?? {}
    assert.sameMembers(Object.keys(properties), Object.keys(Credential.fields))
    assert.sameMembers([...(required ?? [])], Object.keys(properties))
    assert.deepStrictEqual(
      Object.keys(properties).filter((field) => !described(properties[field])),
      []
    )
    assert.strictEqual(properties["created_at"]?.format, "date-time")
    assert.strictEqual(properties["sort_order"]?.minimum, 0)
  })

  it.effect("describes every field of a create, with its default (section 4.1)", function* () {
    const { components } = yield* document
    const { properties = {}, required } = components.schemas["NewCredential"] ?? {}
    assert.sameMembers(Object.keys(properties), fields)
    assert.sameMembers([...(required ?? [])], ["key", "provider"])
    assert.deepStrictEqual(
      fields.filter((field) => !described(properties[field])),
      []
    )
    const declared = Object.fromEntries(
      Object.entries(properties).flatMap(([field, schema]) => ("default" in schema ? [[field, schema.default]] : []))
    )
    assert.deepStrictEqual(declared, defaults)
  })

  for (const [verb, isAllowed] of [
    ["allows", true],
    ["forbids", false]
  ] as const) {
    const bodies = limits.filter(([, , allowed]) => allowed === isAllowed)
    it.effect.each(bodies)(`${verb} %s in a new credential (section 8)`, function* ([, change]) {
      const { components } = yield* document
      const found = mismatches(
        { $ref: "#/components/schemas/NewCredential" },
        { ...minimal, ...change },
        components.schemas
      )
      assert.strictEqual(found.length === 0, isAllowed, found.join())
    })
  }

  it.effect("has examples that match the schemas and, as requests, are accepted (section 4)", function* () {
    const found = yield* document
    const { url } = yield* TestService
    const { management_key } = yield* TestService.tenant
    const { content } = operationOf(found, create).requestBody ?? { content: undefined }
    const { examples, schema } = content?.["application/json"] ?? { schema: { enum: [] } }
    assert.deepStrictEqual(mismatches(schema, examples?.example.value, found.components.schemas), [])
    const answer = yield* send(url, {
      method: "POST",
      path: "/api/v1/byok",
      headers: [
        ["Authorization", `Bearer ${management_key}`],
        ["Content-Type", "application/json"]
      ],
      body: JSON.stringify(examples?.example.value)
    })
    assert.strictEqual(answer.status, 201)
    const stored = (JSON.parse(answer.body) as { readonly data: { readonly id: string } }).data.id
    const changes = operationOf(found, update).requestBody?.content["application/json"]
    assert.deepStrictEqual(
      mismatches(changes?.schema ?? { enum: [] }, changes?.examples?.example.value, found.components.schemas),
      []
    )
    const tenant = yield* TestService.tenant
    assert.strictEqual((yield* tenant.update(stored, changes?.examples?.example.value)).status, 200)
    for (const operation of operations) {
      const status = operation === create ? "201" : "200"
      const success = operationOf(found, operation).responses[status]?.content["application/json"]
      assert.deepStrictEqual(
        mismatches(success?.schema ?? { enum: [] }, success?.examples?.example.value, found.components.schemas),
        []
      )
    }
  })

  it.effect("declares exactly the errors of each operation, with their messages (section 7)", function* () {
    const found = yield* document
    const metadata = { issues: [{ path: ["allowed_models", 3], message: "must be a string" }] }
    const headers = { "x-request-id": "a", "www-authenticate": "Bearer", "retry-after": "1" }
    for (const [operation, expected] of errors) {
      const declared = Object.keys(operationOf(found, operation).responses).filter((status) => Number(status) >= 400)
      assert.sameMembers(declared, Array.from(new Set(expected.map((refusal) => String(refusals[refusal][0])))))
      for (const refusal of expected) {
        const body = envelope(refusal, refusal === "InvalidParams" ? metadata : undefined)
        const answer = { status: refusals[refusal][0], headers, body }
        assert.deepStrictEqual(undeclared(found, operation, answer), [], body)
      }
    }
  })

  it.effect("does not match an answer with another message, code, member or header (control)", function* () {
    const found = yield* document
    const headers = { "x-request-id": "a" }
    for (const body of [
      '{"error":{"code":404,"message":"Not found"}}',
      '{"error":{"code":400,"message":"Resource not found"}}',
      '{"error":{"message":"Resource not found"}}',
      '{"error":{"code":404,"message":"Resource not found"},"_tag":"NotFound"}',
      '{"code":404,"message":"Resource not found"}',
      "null"
    ]) {
      assert.isNotEmpty(undeclared(found, get, { status: 404, headers, body }), body)
    }
    assert.isNotEmpty(undeclared(found, get, { status: 418, headers, body: "{}" }))
    const answer = yield* (yield* TestService.tenant).create(minimal)
    const data = created(answer)
    const { label: _label, ...less } = data
    for (const other of [
      { ...data, key: "k" },
      less,
      { ...data, sort_order: "0" },
      { ...data, declared_region: "x" }
    ]) {
      assert.isNotEmpty(undeclared(found, create, { ...answer, body: JSON.stringify({ data: other }) }))
    }
    assert.isNotEmpty(undeclared(found, create, { ...answer, headers: {} }))
  })
})
