import { isDeepStrictEqual } from "node:util"
import { NodeCrypto } from "@effect/platform-node"
import { DateTime, Effect, Exit, Layer } from "effect"
import { InvalidParams } from "../../../src/domain/Errors.ts"
import { decodeNewCredential } from "../../../src/domain/NewCredential.ts"
import { CurrentPrincipal } from "../../../src/domain/Principal.ts"
import { AccountRepository } from "../../../src/port/AccountRepository.ts"
import { Cipher, SealingRefused } from "../../../src/port/Cipher.ts"
import * as CredentialsLive from "../../../src/service/credentials/Credentials.ts"
import { importCredential, makeImportCheck } from "../../../src/service/credentials/importCredential.ts"
import * as CipherPlain from "../../support/keys/CipherPlain.ts"
import * as MemoryStore from "../../support/memory/Memory.ts"
import { Memory } from "../../support/memory/Memory.ts"
import { addApiKey, addWorkspace, newHash, newTenant, newWorkspaceId } from "../../support/database/newTenant.ts"
import { as, create, update } from "../../support/service/asTenant.ts"
import { accessKey, serviceAccount } from "../../support/keys/cloudKeys.ts"
import { encryptedKeys, rsaPem, unusableKeys } from "../../support/keys/unusableKeys.ts"
import { assert, describe, it, itWith } from "../../support/it.ts"
import { defaultSettings } from "../../support/service/defaultSettings.ts"

const serviceWith = (cipher: Layer.Layer<Cipher>) =>
  Layer.fresh(
    CredentialsLive.layer.pipe(
      Layer.provide([cipher, NodeCrypto.layerSecureRandom]),
      Layer.provideMerge(MemoryStore.layer),
      Layer.provideMerge(defaultSettings)
    )
  )
const refusingToSeal = Layer.effect(
  Cipher,
  Effect.map(Cipher, (cipher) => ({ ...cipher, seal: () => Effect.fail(new SealingRefused({ reason: "no key" })) }))
).pipe(Layer.provide(CipherPlain.layer))
const service = serviceWith(CipherPlain.layer)

/** An account with every kind of unusable workspace and hash, and a second account. */
const scene = Effect.gen(function* () {
  const { deleteWorkspace, revokeApiKey } = yield* AccountRepository
  const caller = yield* newTenant
  const stranger = yield* newTenant
  const revoked = yield* addApiKey(caller.account_id)
  yield* revokeApiKey(revoked, yield* DateTime.now)
  const deleted = yield* addWorkspace(caller.account_id)
  yield* deleteWorkspace(deleted, yield* DateTime.now)
  return {
    caller,
    stranger,
    own: {
      hash: caller.hash,
      ordinary: yield* addApiKey(caller.account_id),
      workspace: yield* addWorkspace(caller.account_id)
    },
    foreign: { hash: stranger.hash, workspace: stranger.workspace_id },
    unknown: { hash: yield* newHash, workspace: yield* newWorkspaceId },
    revoked,
    deleted
  }
})
type Scene = Effect.Success<typeof scene>

const rowCount = Effect.map(Memory, ({ credentials }) => credentials.size)

const notWorkspace = { path: ["workspace_id"], message: "is not a workspace of this account" }
const notKey = (index: number) => ({
  path: ["allowed_api_key_hashes", index],
  message: "is not an API key of this account"
})

const inService = itWith(service)

describe("a create", () => {
  const cases: ReadonlyArray<readonly [string, (scene: Scene) => object, ReadonlyArray<object>]> = [
    ["a deleted workspace (D6)", ({ deleted }) => ({ workspace_id: deleted }), [notWorkspace]],
    [
      "unusable API key hashes among usable ones (D7, D24)",
      ({ foreign, own, revoked, unknown }) => ({
        allowed_api_key_hashes: [own.hash, foreign.hash, own.ordinary, unknown.hash, revoked, foreign.hash]
      }),
      [notKey(1), notKey(3), notKey(4), notKey(5)]
    ],
    [
      "a workspace and an API key hash of another account (D7)",
      ({ foreign, own }) => ({ workspace_id: foreign.workspace, allowed_api_key_hashes: [own.hash, foreign.hash] }),
      [notWorkspace, notKey(1)]
    ]
  ]
  inService.each(cases)("is refused and stores nothing with %s", function* ([, given, issues]) {
    const made = yield* scene
    const refused = yield* Effect.flip(create(made.caller, given(made)))
    assert.instanceOf(refused, InvalidParams)
    if (refused._tag === "InvalidParams") assert.deepEqual<unknown>(refused.error.metadata.issues, issues)
    assert.strictEqual(yield* rowCount, 0)
  })

  inService(
    "is stored with a workspace and API key hashes of its account, even repeated (D23, D24, control)",
    function* () {
      const { caller, own } = yield* scene
      const allowed_api_key_hashes = [own.ordinary, own.hash, own.ordinary]
      const created = yield* create(caller, { workspace_id: own.workspace, allowed_api_key_hashes })
      assert.deepEqual<unknown>(created.allowed_api_key_hashes, allowed_api_key_hashes)
      assert.strictEqual(yield* rowCount, 1)
    }
  )

  it.effect("stores nothing if the key cannot be sealed, which is a defect and no error of the caller (D11)", () =>
    Effect.gen(function* () {
      const exit = yield* Effect.exit(create((yield* scene).caller, {}))
      assert.isTrue(Exit.isFailure(exit) && Exit.hasDies(exit))
      assert.strictEqual(yield* rowCount, 0)
    }).pipe(Effect.provide(serviceWith(refusingToSeal)))
  )
})

/** The result of `act`, and the least CPU of three calls in milliseconds, because the process collects garbage too. */
const cpuOf = Effect.fnUntraced(function* <A, E, R>(act: Effect.Effect<A, E, R>) {
  const measured = Effect.gen(function* () {
    const before = process.cpuUsage()
    const result = yield* act
    const { system, user } = process.cpuUsage(before)
    return { result, millis: (system + user) / 1000 }
  })
  const [first, second, third] = [yield* measured, yield* measured, yield* measured]
  return [first.result, Math.min(first.millis, second.millis, third.millis)] as const
})

describe("a key that should sign tokens and cannot (D57)", () => {
  const bodyOf = (private_key: string) => ({
    provider: "google-vertex",
    key: JSON.stringify({ ...serviceAccount, private_key })
  })
  const inPem = "must be a private RSA key of 2048 to 4096 bits in PEM"
  const cases: ReadonlyArray<readonly [fault: string, body: { provider: string; key: string }, message: string]> = [
    ...Object.entries(unusableKeys).map(
      ([name, key]) => [`a private_key that is ${name}`, bodyOf(key), `private_key ${inPem}`] as const
    ),
    ...Object.entries(encryptedKeys).map(
      ([name, key]) =>
        [`a private_key in ${name} with a passphrase`, bodyOf(key), "private_key must have no passphrase"] as const
    ),
    [
      "a region that is none",
      { provider: "amazon-bedrock", key: JSON.stringify({ ...accessKey, region: "nowhere!" }) },
      "region must be a region such as us-east-1"
    ]
  ]

  it.effect("is refused alike by create, update, import and the check before an import, at once", function* () {
    const wrong: Array<unknown> = []
    for (const [fault, { key, provider }, message] of cases) {
      const body = { provider, key }
      const issues = [{ path: ["key"], message: `must be a plain key or a JSON object: ${message}` }]
      const results = yield* Effect.provide(
        Effect.gen(function* () {
          const { account_id } = yield* newTenant
          const { id } = yield* create({ account_id }, { provider, key: "plain-key-0123456789" })
          const salt = Buffer.alloc(32)
          const check = yield* makeImportCheck(account_id, salt)
          const inProcess = { kind: "in_process", account_id } as const
          const created = Effect.flatMap(decodeNewCredential(body), (input) =>
            as({ account_id }, (credentials) => credentials.create(input))
          )
          const before = yield* rowCount
          const results = []
          for (const [name, act] of [
            ["create", created],
            ["update", update({ account_id }, id, { key })],
            ["import", Effect.provideService(importCredential(body, salt), CurrentPrincipal, inProcess)],
            ["check", check(body)]
          ] as const) {
            const refused = Effect.match<unknown, unknown, Effect.Services<typeof act>, unknown, string>(act, {
              onFailure: (error) => error,
              onSuccess: () => "accepted"
            })
            const [error, millis] = yield* cpuOf(refused)
            const found = error instanceof InvalidParams ? error.error.metadata.issues : error
            if (!isDeepStrictEqual(found, issues) || millis > 50) results.push([name, found, Math.round(millis)])
          }
          const stored = (yield* rowCount) - before
          return stored === 0 ? results : [...results, ["stored", stored]]
        }),
        service
      )
      if (results.length > 0) wrong.push([fault, ...results])
    }
    assert.deepStrictEqual(wrong, [])
  })

  inService("is taken if it can (control)", function* () {
    const tenant = yield* newTenant
    for (const key of [serviceAccount.private_key, ...[2048, 3072, 4096].map(rsaPem)]) {
      const { id, label } = yield* create(tenant, bodyOf(key))
      assert.strictEqual(label, "0f1...4567")
      yield* update(tenant, id, { key: `${bodyOf(key).key}\n` })
    }
  })
})
