import { HTTPClient, OpenRouter } from "@openrouter/sdk"
import type { BYOKKey, CreateBYOKKeyRequest, UpdateBYOKKeyRequest } from "@openrouter/sdk/models"
import type { ListBYOKKeysRequest } from "@openrouter/sdk/models/operations"
import * as errors from "@openrouter/sdk/models/errors"
import { Effect, Option } from "effect"
import { randomUUID } from "node:crypto"
import { CredentialId } from "../../src/domain/Identifiers.ts"
import { createdId, minimal, unknownId } from "../support/http/Bodies.ts"
import { type Refusal, refusals } from "../support/http/Refusal.ts"
import { TestService, withoutTable } from "../support/http/TestService.ts"
import { offeredKey } from "../support/keys/offeredKey.ts"
import { assert, layerLive } from "../support/it.ts"

const { key } = minimal
const otherKey = "sk-9876543210-9876543210-WxYz"

/** The official client with an API key, without retries. */
const sdkWith = Effect.fnUntraced(function* (apiKey: string) {
  const { url } = yield* TestService
  return new OpenRouter({ apiKey, serverURL: `${url}/api/v1`, retryConfig: { strategy: "none" } })
})

/** The official client with its default retries. Replaces the service's first answer by a 502, and records all answers. */
const sdkThroughLoss = Effect.fnUntraced(function* (apiKey: string) {
  const { url } = yield* TestService
  const answers: Array<{ readonly status: number; readonly body: string; readonly replayed: string | null }> = []
  const httpClient = new HTTPClient({
    fetcher: async (request) => {
      const answer = await fetch(request as Request)
      const replayed = answer.headers.get("idempotent-replayed")
      answers.push({ status: answer.status, body: await answer.clone().text(), replayed })
      return answers.length > 1 ? answer : new Response("{}", { status: 502, headers: { "retry-after-ms": "1" } })
    }
  })
  return { answers, client: new OpenRouter({ apiKey, serverURL: `${url}/api/v1`, httpClient }) }
})

/** A call and the service's answer, success or failure. */
const call = <A>(answer: () => Promise<A>) =>
  Effect.tryPromise({
    try: answer,
    catch: (error) => {
      if (error instanceof errors.OpenRouterError) return error
      throw error
    }
  })

/** The request fails with this class, status and message. */
const failsWith = <E extends errors.OpenRouterError>(
  request: Effect.Effect<unknown, errors.OpenRouterError>,
  expected: abstract new (...args: ReadonlyArray<never>) => E,
  statusCode: number,
  message: string = ""
) =>
  Effect.gen(function* () {
    const error = yield* Effect.flip(request)
    if (!(error instanceof expected)) return assert.fail(`${error.name} is not the expected class`)
    assert.strictEqual(error.statusCode, statusCode)
    assert.include(error.body, message)
    return error
  })

const create = (client: OpenRouter, createBYOKKeyRequest: CreateBYOKKeyRequest) =>
  call(() => client.byok.create({ createBYOKKeyRequest }))

const get = (client: OpenRouter, id: string) => call(() => client.byok.get({ id }))

/** Every credential that the client's iterator returns, and the count of each page. */
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

/** A tenant, and the client under its key. */
const newClient = Effect.flatMap(TestService.newTenant, (tenant) =>
  Effect.map(sdkWith(tenant.management_key), (client) => ({ ...tenant, client }))
)

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

const shapes: ReadonlyArray<readonly [provider: string, members: string, given: object]> = [
  ["openai", "only the required members", {}],
  ["anthropic", "name, disabled and isFallback", { name: "Production", disabled: true, isFallback: true }],
  ["cohere", "isRequired and isByokOnly", { isRequired: true, isByokOnly: true }],
  [
    "azure",
    "allowedModels, allowedUserIds and declaredZdr",
    { allowedModels: ["a/b"], allowedUserIds: [], declaredZdr: true }
  ],
  ["amazon-bedrock/claude-on-aws", "only the required members", {}]
]

layerLive(TestService.layer)("the official client of the reference API", (it) => {
  it.effect.each(shapes)(
    "creates a credential of %s with %s, and gets it (section 4, D1)",
    function* ([provider, , given]) {
      const { client, workspace_id } = yield* newClient
      const made = yield* create(client, { ...given, provider, key } as CreateBYOKKeyRequest)
      const { createdAt, id, ...rest } = made.data
      assert.deepStrictEqual<object>(rest, { ...defaults, provider, workspaceId: workspace_id, sortOrder: 0, ...given })
      assert.isFalse(Number.isNaN(Date.parse(createdAt)))
      assert.deepStrictEqual(yield* get(client, id), made)
    }
  )

  it.effect("lists 120 credentials page by page, each once and in order (L4)", function* () {
    const { client, create } = yield* newClient
    const providers = ["openai", "cohere", "xai"]
    const bodies = Array.from({ length: 120 }, (_, n) => ({ provider: providers[n % 3], key }))
    const ids = yield* Effect.forEach(bodies, (body) => Effect.map(create(body), createdId))
    const idsOf = ({ found }: { readonly found: ReadonlyArray<BYOKKey> }) => found.map(({ id }) => id)
    const all = yield* listAll(client)
    assert.deepStrictEqual(idsOf(all), ids)
    assert.deepStrictEqual(all.counts, [120, 120, 120])
    const few = yield* listAll(client, { limit: 7, provider: "cohere" })
    assert.deepStrictEqual(
      idsOf(few),
      ids.filter((_, n) => n % 3 === 1)
    )
    assert.deepStrictEqual(few.counts, [40, 40, 40, 40, 40, 40])
    const none = yield* listAll(client, { provider: "azure" })
    assert.deepStrictEqual([none.found, none.counts], [[], [0]])
  })

  it.effect("updates every member that it knows, and clears those that may be null (L1)", function* () {
    const { client, create, management_key_hash } = yield* newClient
    const id = createdId(yield* create(minimal))
    const { data: before } = yield* get(client, id)
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
    const { label: _, ...cleared } = { ...defaults, isFallback: true }
    const again = yield* update(client, id, cleared)
    assert.deepStrictEqual(again.data, { ...before, ...cleared })
    assert.deepStrictEqual((yield* get(client, id)).data, again.data)
  })

  it.effect("replaces the key, and deletes the credential (L10, L11)", function* () {
    const { account_id, client, create } = yield* newClient
    const id = createdId(yield* create(minimal))
    assert.strictEqual((yield* update(client, id, { key: otherKey })).data.label, "sk-...WxYz")
    assert.deepStrictEqual(yield* offeredKey(account_id, CredentialId.make(id)), Option.some(otherKey))
    assert.deepStrictEqual(yield* remove(client, id), { deleted: true })
    assert.instanceOf(yield* Effect.flip(get(client, id)), errors.NotFoundResponseError)
    assert.deepStrictEqual((yield* listAll(client)).found, [])
  })

  it.effect("gets the error classes that it declares for each operation (section 7, D2 to D5, D11)", function* () {
    const { client, create: createHere, ordinaryKey } = yield* newClient
    const id = createdId(yield* createHere(minimal))
    const requests = (client: OpenRouter, id: string) => ({
      create: create(client, { provider: "openai", key }),
      list: listAll(client),
      get: get(client, id),
      update: update(client, id, { name: "x" }),
      delete: remove(client, id)
    })
    /** Expects each call to fail with the class, or with the default class if the client declares none for the operation. */
    const fail = (
      asked: Partial<ReturnType<typeof requests>>,
      refusal: Refusal,
      declared: Parameters<typeof failsWith>[1],
      undeclared: ReadonlyArray<string> = []
    ) =>
      Effect.forEach(Object.entries(asked), ([name, request]) => {
        const expected = undeclared.includes(name) ? errors.OpenRouterDefaultError : declared
        const [status, message] = refusals[refusal]
        return failsWith(request, expected, status, message)
      })
    const { UnauthorizedResponseError } = errors
    yield* fail(requests(yield* sdkWith("unknown"), id), "InvalidKey", UnauthorizedResponseError)
    yield* fail(requests(yield* sdkWith(""), id), "MissingKey", UnauthorizedResponseError)
    const ordinary = requests(yield* sdkWith(yield* ordinaryKey), id)
    yield* fail(ordinary, "Forbidden", errors.ForbiddenResponseError, ["get", "list", "delete"])
    for (const other of [unknownId, "nonsense", "a/b", ".."]) {
      const { create: _, list: __, ...ofOne } = requests(client, other)
      yield* fail(ofOne, "NotFound", errors.NotFoundResponseError)
    }
    const all = fail(requests(client, id), "InternalError", errors.InternalServerResponseError)
    yield* withoutTable("credentials", all)
    const conflict = { isFallback: true, isByokOnly: true }
    for (const request of [update(client, id, conflict), listAll(client, { workspaceId: unknownId })]) {
      yield* failsWith(request, errors.BadRequestResponseError, ...refusals.InvalidParams)
    }
    const refused = create(client, { provider: "openai", key, ...conflict })
    const { error } = yield* failsWith(refused, errors.BadRequestResponseError, ...refusals.InvalidParams)
    assert.deepStrictEqual(error.metadata, {
      issues: [{ path: ["is_byok_only"], message: "cannot be combined with is_fallback" }]
    })
  })

  it.effect("retries a create after a 502: it is stored once with an idempotency key, else twice", function* () {
    const { management_key } = yield* TestService.newTenant
    for (const [headers, stored] of [
      [{ "Idempotency-Key": randomUUID() }, 1],
      [{}, 2]
    ] as const) {
      const { answers, client } = yield* sdkThroughLoss(management_key)
      const createBYOKKeyRequest = { provider: "openai", key } as const
      const made = call(() => client.byok.create({ createBYOKKeyRequest }, { headers }))
      const { data } = yield* TestService.storing(stored, made)
      assert.deepStrictEqual(
        answers.map(({ replayed }) => replayed),
        [null, stored === 1 ? "true" : null]
      )
      assert.strictEqual(answers[0]?.body === answers[1]?.body, stored === 1)
      assert.include(answers[1]?.body, data.id)
    }
  })
})
