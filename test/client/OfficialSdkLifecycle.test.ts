import { assert } from "@effect/vitest"
import type { OpenRouter } from "@openrouter/sdk"
import type { BYOKKey, UpdateBYOKKeyRequest } from "@openrouter/sdk/models"
import type { ListBYOKKeysRequest } from "@openrouter/sdk/models/operations"
import {
  BadRequestResponseError,
  ForbiddenResponseError,
  InternalServerResponseError,
  NotFoundResponseError,
  OpenRouterDefaultError,
  type OpenRouterError,
  UnauthorizedResponseError
} from "@openrouter/sdk/models/errors"
import { Effect, Option } from "effect"
import { CredentialId } from "../../src/domain/Identifiers.ts"
import { offeredKey } from "../support/keys/offeredKey.ts"
import { TestService, withoutTable } from "../support/http/TestService.ts"
import { createdId, minimal, statusesOf } from "../support/http/Bodies.ts"
import { call, failsWith, ordinarySdk, sdkThroughLoss, sdkWith } from "../support/http/officialSdk.ts"
import { layerLive } from "../support/process/layerLive.ts"

const unknownId = "019ad5a0-6c1e-7b3a-9f52-3a1c5d7e9b11"
const key = "sk-0123456789-0123456789-AbCd"
const otherKey = "sk-9876543210-9876543210-WxYz"

type Request = Effect.Effect<unknown, OpenRouterError>

/** Every credential that the client's own iteration over pages comes to, and what each page counts. */
const listAll = (client: OpenRouter, request: ListBYOKKeysRequest = {}) =>
  call(async () => {
    const found: Array<BYOKKey> = []
    const counts: Array<number> = []
    for await (const { result } of await client.byok.list(request)) {
      found.push(...result.data)
      counts.push(result.totalCount)
    }
    return { found, counts }
  })

const update = (client: OpenRouter, id: string, updateBYOKKeyRequest: UpdateBYOKKeyRequest) =>
  call(() => client.byok.update({ id, updateBYOKKeyRequest }))

const remove = (client: OpenRouter, id: string) => call(() => client.byok.delete({ id }))

layerLive(TestService.layer)("the official client of the reference API", (it) => {
  it.effect("lists 120 credentials page by page, each once and in order (L4)", () =>
    Effect.gen(function* () {
      const { create, management_key } = yield* TestService.newTenant
      const client = yield* sdkWith(management_key)
      const providers = ["openai", "cohere", "xai"]
      const bodies = Array.from({ length: 120 }, (_, n) => ({ provider: providers[n % 3], key }))
      const ids = yield* Effect.forEach(bodies, (body) => Effect.map(create(body), createdId))
      const all = yield* listAll(client)
      assert.deepStrictEqual(
        all.found.map(({ id }) => id),
        ids
      )
      assert.deepStrictEqual(all.counts, [120, 120, 120])
      const few = yield* listAll(client, { limit: 7, provider: "cohere" })
      assert.deepStrictEqual(
        few.found.map(({ id }) => id),
        ids.filter((_, n) => n % 3 === 1)
      )
      assert.deepStrictEqual(few.counts, [40, 40, 40, 40, 40, 40])
      const none = yield* listAll(client, { provider: "azure" })
      assert.deepStrictEqual([none.found, none.counts], [[], [0]])
    })
  )

  it.effect("updates every member that it knows, and clears those that may be null (L1)", () =>
    Effect.gen(function* () {
      const { create, management_key, management_key_hash } = yield* TestService.newTenant
      const client = yield* sdkWith(management_key)
      const id = createdId(yield* create(minimal))
      const { data: before } = yield* call(() => client.byok.get({ id }))
      const changes = {
        name: "new",
        disabled: true,
        isFallback: false,
        isRequired: true,
        isByokOnly: true,
        declaredZdr: true,
        allowedApiKeyHashes: [management_key_hash],
        allowedModels: ["a/b"],
        allowedUserIds: []
      }
      const { data } = yield* update(client, id, changes)
      assert.deepStrictEqual(data, { ...before, ...changes })
      const flags = { isFallback: true, isRequired: false, isByokOnly: false, disabled: false }
      const cleared = {
        name: null,
        declaredZdr: null,
        allowedApiKeyHashes: null,
        allowedModels: null,
        allowedUserIds: null
      }
      const again = yield* update(client, id, { ...flags, ...cleared })
      assert.deepStrictEqual(again.data, { ...before, ...flags, ...cleared })
      assert.deepStrictEqual((yield* call(() => client.byok.get({ id }))).data, again.data)
    })
  )

  it.effect("replaces the key, and deletes the credential (L10, L11)", () =>
    Effect.gen(function* () {
      const { account_id, create, management_key } = yield* TestService.newTenant
      const client = yield* sdkWith(management_key)
      const id = createdId(yield* create(minimal))
      assert.strictEqual((yield* update(client, id, { key: otherKey })).data.label, "sk-...WxYz")
      assert.deepStrictEqual(yield* offeredKey(account_id, CredentialId.make(id)), Option.some(otherKey))
      assert.deepStrictEqual(yield* remove(client, id), { deleted: true })
      const get: Request = call(() => client.byok.get({ id }))
      for (const request of [get, update(client, id, { name: "x" }), remove(client, id)]) {
        assert.instanceOf(yield* Effect.flip(request), NotFoundResponseError)
      }
      assert.deepStrictEqual((yield* listAll(client)).found, [])
    })
  )

  it.effect("sees the errors that it declares for each operation (section 7)", () =>
    Effect.gen(function* () {
      const { account_id, create, management_key } = yield* TestService.newTenant
      const client = yield* sdkWith(management_key)
      const id = createdId(yield* create(minimal))
      yield* failsWith(listAll(client, { workspaceId: unknownId }), BadRequestResponseError, 400)
      yield* failsWith(update(client, id, { isFallback: true, isByokOnly: true }), BadRequestResponseError, 400)
      yield* failsWith(update(client, unknownId, {}), NotFoundResponseError, 404)
      yield* failsWith(remove(client, "nonsense"), NotFoundResponseError, 404)

      const nobody = yield* sdkWith("unknown")
      const requests = (client: OpenRouter): ReadonlyArray<Request> => [
        listAll(client),
        update(client, id, { name: "x" }),
        remove(client, id)
      ]
      for (const request of requests(nobody)) yield* failsWith(request, UnauthorizedResponseError, 401)

      const ordinary = yield* ordinarySdk(account_id)
      yield* failsWith(update(ordinary, id, {}), ForbiddenResponseError, 403)
      yield* failsWith(listAll(ordinary), OpenRouterDefaultError, 403)
      yield* failsWith(remove(ordinary, id), OpenRouterDefaultError, 403)

      yield* withoutTable(
        "credentials",
        Effect.forEach(requests(client), (request) => failsWith(request, InternalServerResponseError, 500))
      )
    })
  )

  it.effect("repeats after a 502: an update is stored once, a deletion is found to be done (L6, L11)", () =>
    Effect.gen(function* () {
      const { sql } = yield* TestService
      const tenant = yield* TestService.newTenant
      const id = createdId(yield* tenant.create(minimal))
      const updating = yield* sdkThroughLoss(tenant.management_key)
      const { data } = yield* update(updating.client, id, { key: otherKey, disabled: true })
      assert.isTrue(data.disabled)
      assert.deepStrictEqual(statusesOf(updating.answers), [200, 200])
      const rows = yield* sql`SELECT revision, key_version FROM credentials WHERE id = ${id}`
      assert.deepStrictEqual(rows, [{ revision: 2, key_version: 2 }])
      const deleting = yield* sdkThroughLoss(tenant.management_key)
      yield* failsWith(remove(deleting.client, id), NotFoundResponseError, 404)
      assert.deepStrictEqual(statusesOf(deleting.answers), [200, 404])
    })
  )
})
