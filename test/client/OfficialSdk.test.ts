import { assert } from "@effect/vitest"
import type { OpenRouter } from "@openrouter/sdk"
import type { CreateBYOKKeyRequest } from "@openrouter/sdk/models"
import {
  BadRequestResponseError,
  ForbiddenResponseError,
  InternalServerResponseError,
  NotFoundResponseError,
  OpenRouterDefaultError,
  UnauthorizedResponseError
} from "@openrouter/sdk/models/errors"
import { Effect } from "effect"
import { randomUUID } from "node:crypto"
import { Accounts } from "../../src/service/Accounts.ts"
import { layerLive } from "../support/process/layerLive.ts"
import { call, failsWith, ordinarySdk, sdkThroughLoss, sdkWith } from "../support/http/officialSdk.ts"
import { TestService, withoutTable } from "../support/http/TestService.ts"

const unknownId = "019ad5a0-6c1e-7b3a-9f52-3a1c5d7e9b11"
const key = "sk-0123456789-0123456789-AbCd"

const sdk = Effect.gen(function* () {
  const { tenant } = yield* TestService
  return yield* sdkWith((yield* tenant).management_key)
})

const create = (client: OpenRouter, createBYOKKeyRequest: CreateBYOKKeyRequest) =>
  call(() => client.byok.create({ createBYOKKeyRequest }))

const get = (client: OpenRouter, id: string) => call(() => client.byok.get({ id }))

const defaults = {
  name: null,
  label: "sk-...AbCd",
  disabled: false,
  isFallback: false,
  isRequired: false,
  isByokOnly: false,
  allowedApiKeyHashes: null,
  allowedModels: null,
  allowedUserIds: null,
  declaredZdr: null
}

const shapes: ReadonlyArray<readonly [shape: string, request: CreateBYOKKeyRequest, shown: object]> = [
  ["the smallest", { provider: "openai", key }, {}],
  ["with a name", { provider: "anthropic", key, name: "Production" }, { name: "Production" }],
  ["disabled", { provider: "groq", key, disabled: true }, { disabled: true }],
  ["a fallback", { provider: "mistral", key, isFallback: true }, { isFallback: true }],
  [
    "required and alone",
    { provider: "cohere", key, isRequired: true, isByokOnly: true },
    { isRequired: true, isByokOnly: true }
  ],
  [
    "restricted",
    { provider: "azure", key, allowedModels: ["a/b"], allowedUserIds: [], declaredZdr: true },
    { allowedModels: ["a/b"], allowedUserIds: [], declaredZdr: true }
  ],
  ["of a provider with a suffix", { provider: "amazon-bedrock/claude-on-aws", key }, {}],
  ["key material", { provider: "fireworks", key: JSON.stringify({ api_key: key, region: "eu" }) }, {}]
]

layerLive(TestService.layer)("the official client of the reference API", (it) => {
  it.effect.each(shapes)("creates a credential and reads it back: %s (section 4, D1)", ([, request, shown]) =>
    Effect.gen(function* () {
      const { workspace_id } = yield* TestService.tenant
      const client = yield* sdk
      const made = yield* create(client, request)
      const { createdAt, id, ...rest } = made.data
      assert.deepStrictEqual<object>(rest, {
        ...defaults,
        provider: request.provider,
        workspaceId: workspace_id,
        sortOrder: 0,
        ...shown
      })
      assert.isFalse(Number.isNaN(Date.parse(createdAt)))
      assert.deepStrictEqual(yield* get(client, id), made)
    })
  )

  it.effect("passes a workspace and API key hashes (section 4.1)", () =>
    Effect.gen(function* () {
      const { account_id, management_key_hash } = yield* TestService.tenant
      const { workspace_id } = yield* (yield* Accounts).createWorkspace(account_id, "another")
      const allowedApiKeyHashes = [management_key_hash]
      const { data } = yield* create(yield* sdk, {
        provider: "openai",
        key,
        workspaceId: workspace_id,
        allowedApiKeyHashes
      })
      assert.strictEqual(data.workspaceId, workspace_id)
      assert.deepStrictEqual(data.allowedApiKeyHashes, allowedApiKeyHashes)
    })
  )

  it.effect("400 is its BadRequestResponseError, with our issues in its metadata (section 7, D7)", () =>
    Effect.gen(function* () {
      const client = yield* sdk
      const request = create(client, { provider: "openai", key, isFallback: true, isByokOnly: true })
      const error = yield* failsWith(request, BadRequestResponseError, 400, "Invalid request parameters")
      assert.deepStrictEqual(error.error.metadata, {
        issues: [{ path: ["is_byok_only"], message: "cannot be combined with is_fallback" }]
      })
    })
  )

  it.effect("401 is its UnauthorizedResponseError (section 7, D2, D3)", () =>
    Effect.gen(function* () {
      for (const [token, message] of [
        ["unknown", "Invalid API key"],
        ["", "Missing Authentication header"]
      ] as const) {
        const client = yield* sdkWith(token)
        yield* failsWith(create(client, { provider: "openai", key }), UnauthorizedResponseError, 401, message)
        yield* failsWith(get(client, unknownId), UnauthorizedResponseError, 401, message)
      }
    })
  )

  it.effect(
    "403 is its ForbiddenResponseError on create; on get, where it declares none, an error with status 403 (section 7, D4)",
    () =>
      Effect.gen(function* () {
        const client = yield* ordinarySdk((yield* TestService.tenant).account_id)
        const message = "Only management keys can perform this operation"
        yield* failsWith(create(client, { provider: "openai", key }), ForbiddenResponseError, 403, message)
        yield* failsWith(get(client, unknownId), OpenRouterDefaultError, 403, message)
      })
  )

  it.effect("404 is its NotFoundResponseError (section 7, D5)", () =>
    Effect.gen(function* () {
      const client = yield* sdk
      for (const id of [unknownId, "nonsense", "a/b", ".."]) {
        yield* failsWith(get(client, id), NotFoundResponseError, 404, "Resource not found")
      }
    })
  )

  /**
   * Creates with the client's own way to retry, where the first answer is lost behind the service: how often it asked,
   * the answers, and how many credentials are stored.
   */
  const createThroughLoss = Effect.fnUntraced(function* (headers: Record<string, string>) {
    const { rowCount } = yield* TestService
    const { management_key } = yield* TestService.newTenant
    const { answers, client } = yield* sdkThroughLoss(management_key)
    const before = yield* rowCount
    const createBYOKKeyRequest = { provider: "openai", key } as const
    const { data } = yield* call(() => client.byok.create({ createBYOKKeyRequest }, { headers }))
    return { answers, id: data.id, stored: (yield* rowCount) - before }
  })

  it.effect("retries after a 502: with an Idempotency-Key header one credential is stored", () =>
    Effect.gen(function* () {
      const { answers, id, stored } = yield* createThroughLoss({ "Idempotency-Key": randomUUID() })
      assert.strictEqual(stored, 1)
      assert.deepStrictEqual(
        answers.map(({ replayed }) => replayed),
        [null, "true"]
      )
      assert.strictEqual(answers[0]?.body, answers[1]?.body)
      assert.include(answers[1]?.body, id)
    })
  )

  it.effect("retries after a 502: without the header, the default, two are stored", () =>
    Effect.gen(function* () {
      const { answers, stored } = yield* createThroughLoss({})
      assert.strictEqual(stored, 2)
      assert.lengthOf(answers, 2)
    })
  )

  it.effect("500 is its InternalServerResponseError (section 7, D11)", () =>
    Effect.gen(function* () {
      const client = yield* sdk
      const message = "Internal Server Error"
      yield* withoutTable(
        "credentials",
        Effect.andThen(
          failsWith(create(client, { provider: "openai", key }), InternalServerResponseError, 500, message),
          failsWith(get(client, unknownId), InternalServerResponseError, 500, message)
        )
      )
    })
  )
})
