import { Arbitrary, Effect, Layer, Result } from "effect"
import { createHmac } from "node:crypto"
import { CredentialRepository } from "../../../src/port/CredentialRepository.ts"
import { Credentials } from "../../../src/port/Credentials.ts"
import { AccountId } from "../../../src/domain/Identifiers.ts"
import { CurrentPrincipal } from "../../../src/domain/Principal.ts"
import { importCredential, makeImportCheck } from "../../../src/service/credentials/importCredential.ts"
import { newTenant } from "../../support/database/newTenant.ts"
import { acceptedBody, anyBody, givenKey, oneOf, text } from "../../support/memory/arbitraries.ts"
import { inMemory, own } from "../../support/memory/inMemory.ts"
import { Memory } from "../../support/memory/Memory.ts"
import { remove, update } from "../../support/service/asTenant.ts"
import { assert, describe, it, itWith } from "../../support/it.ts"

const salt = Buffer.alloc(32, "salt")
/** A record without the unknown member that a create over HTTP ignores. */
const record = Arbitrary.map(acceptedBody(givenKey), ({ added_later: _, ...members }) => members)
const body = oneOf<Record<string, unknown>>(record, record, anyBody(text(0, 20)))
const bodies = Arbitrary.array(body, { maxLength: 8 })
const minimal = { provider: "groq", key: "fake-key-fake-key-fake" }

const inService = itWith(inMemory())

describe("the import of a record", () => {
  inService.prop(
    "stores each distinct record once, and nothing in a second run, in any order (import)",
    [bodies],
    function* ([records]) {
      const { account_id } = yield* newTenant
      const { credentials } = yield* Memory
      for (const record of records) {
        if (Array.isArray(record["allowed_api_key_hashes"])) yield* own(account_id, record)
      }
      const run = (given: ReadonlyArray<Record<string, unknown>>) =>
        Effect.forEach(given, (record) => Effect.result(importCredential(record, salt)), {
          concurrency: "unbounded"
        }).pipe(Effect.provideService(CurrentPrincipal, { kind: "in_process", account_id }))
      const first = yield* run(records)
      const stored = credentials.size
      const accepted = first.filter(Result.isSuccess)
      assert.lengthOf(
        accepted.filter(({ success }) => !success.replayed),
        stored
      )
      const again = yield* run(records.toReversed())
      assert.strictEqual(credentials.size, stored)
      assert.lengthOf(again.filter(Result.isSuccess), accepted.length)
      assert.isTrue(again.filter(Result.isSuccess).every(({ success }) => success.replayed))
      assert.deepStrictEqual(
        again.toReversed().map((result) => Result.isSuccess(result) && result.success.credential.id),
        first.map((result) => Result.isSuccess(result) && result.success.credential.id)
      )
    },
    { arbitrary: { runs: 40 } }
  )

  inService("is refused if its key has a scheme such as Bearer before it (D45)", function* () {
    const { account_id } = yield* newTenant
    const imported = importCredential({ ...minimal, key: "Bearer sk-0123456789" }, salt)
    const error = yield* Effect.flip(
      Effect.provideService(imported, CurrentPrincipal, { kind: "in_process", account_id })
    )
    assert(error._tag === "InvalidParams")
    assert.deepStrictEqual(error.error.metadata.issues, [
      { path: ["key"], message: "must not have a scheme such as Bearer before it" }
    ])
    assert.strictEqual((yield* Memory).credentials.size, 0)
  })

  inService.each<readonly [member: string, path: ReadonlyArray<string>, message: string]>([
    ["alowed_models", ["alowed_models"], "unknown member; the nearest is allowed_models"],
    ["Disabled", ["Disabled"], "unknown member; the nearest is disabled"],
    ["allowed_api_key_hashs", ["allowed_api_key_hashs"], "unknown member; the nearest is allowed_api_key_hashes"],
    [
      "models",
      ["models"],
      "unknown member; known: key, provider, workspace_id, name, disabled, is_fallback, is_required, is_byok_only, allowed_api_key_hashes, allowed_models, allowed_user_ids, declared_region, declared_zdr"
    ]
  ])("is refused with the nearest name if it has the unknown member %s", function* ([member, path, message]) {
    const { account_id } = yield* newTenant
    const checked = Effect.flatMap(makeImportCheck(account_id, salt), (check) => check({ ...minimal, [member]: ["x"] }))
    for (const run of [importCredential({ ...minimal, [member]: ["x"] }, salt), checked]) {
      const error = yield* Effect.flip(
        Effect.provideService(run as typeof checked, CurrentPrincipal, { kind: "in_process", account_id })
      )
      assert(error._tag === "InvalidParams")
      assert.deepStrictEqual(error.error.metadata.issues, [{ path, message }])
    }
    assert.strictEqual((yield* Memory).credentials.size, 0)
  })

  it.effect(
    "is recognised by the members that differ from their defaults, so later versions make no copies (F18)",
    () =>
      Effect.gen(function* () {
        const used: Array<string> = []
        const create = (_: unknown, idempotency_key = "") => {
          used.push(idempotency_key)
          return Effect.die("not stored")
        }
        const said: ReadonlyArray<readonly [object, ReadonlyArray<readonly [string, unknown]>]> = [
          [{}, [["provider", "groq"]]],
          [
            { name: null, disabled: false, is_fallback: true, allowed_models: [], declared_zdr: false },
            [
              ["allowed_models", []],
              ["declared_zdr", false],
              ["is_fallback", true],
              ["provider", "groq"]
            ]
          ]
        ]
        for (const [members, sorted] of said) {
          const imported = importCredential({ ...minimal, ...members }, salt)
          yield* Effect.exit(
            Effect.provide(
              imported,
              Layer.merge(Layer.mock(Credentials, { create }), Layer.mock(CredentialRepository, {}))
            )
          )
          const mac = createHmac("sha256", salt).update(`byok/import/1\0${JSON.stringify(sorted)}\0${minimal.key}`)
          assert.strictEqual(used.pop(), mac.digest("base64url"))
        }
      }).pipe(
        Effect.provideService(CurrentPrincipal, {
          kind: "in_process",
          account_id: AccountId.make("019ad5a0-6c1d-7c44-8d10-5f0e2b4c6a88")
        })
      )
  )

  inService("creates another credential with another salt (control)", function* () {
    const { account_id } = yield* newTenant
    const { credentials } = yield* Memory
    for (const salt of [Buffer.alloc(32, 1), Buffer.alloc(32, 2)]) {
      yield* Effect.provideService(importCredential(minimal, salt), CurrentPrincipal, {
        kind: "in_process",
        account_id
      })
    }
    assert.strictEqual(credentials.size, 2)
  })

  inService("is refused if the credential of an earlier import was deleted or got another key (L11)", function* () {
    const caller = yield* newTenant
    const { credentials } = yield* Memory
    const act = <A, E, R>(effect: Effect.Effect<A, E, R>) =>
      Effect.provideService(effect, CurrentPrincipal, { kind: "in_process", account_id: caller.account_id })
    const deleted = yield* act(importCredential(minimal, salt))
    yield* remove(caller, deleted.credential.id)
    const other = { ...minimal, name: "rotated" }
    const rotated = yield* act(importCredential(other, salt))
    yield* update(caller, rotated.credential.id, { key: "another-key-another-key" })
    for (const body of [minimal, other]) {
      const error = yield* Effect.flip(act(importCredential(body, salt)))
      assert(error._tag === "InvalidParams")
      assert.deepStrictEqual(error.error.metadata.issues, [
        { path: [], message: "was imported before, and deleted or given another key since" }
      ])
    }
    assert.strictEqual(credentials.size, 1)
  })
})
