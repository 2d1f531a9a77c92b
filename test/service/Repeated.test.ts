import { createHmac } from "node:crypto"
import { assert, describe, it } from "@effect/vitest"
import { Cause, Effect, Exit, Schema } from "effect"
import { type Actor, CurrentActor, CurrentCaller } from "../../src/domain/CurrentCaller.ts"
import { Conflict } from "../../src/domain/Errors.ts"
import { IdempotencyKey } from "../../src/domain/IdempotencyKey.ts"
import { NewCredential } from "../../src/domain/NewCredential.ts"
import { CredentialRepository } from "../../src/port/CredentialRepository.ts"
import { Credentials } from "../../src/port/Credentials.ts"
import { IdempotencyRecords } from "../../src/port/IdempotencyRecords.ts"
import * as CipherPlain from "../support/keys/CipherPlain.ts"
import { inMemory } from "../support/memory/inMemory.ts"
import { Memory } from "../support/memory/Memory.ts"
import { newTenant } from "../support/database/newTenant.ts"
import { instead, remove } from "../support/service/asTenant.ts"

const service = inMemory(CipherPlain.layer)

const key = IdempotencyKey.make("k")
const input = Schema.decodeUnknownSync(NewCredential)({ provider: "groq", key: "fake-key", allowed_models: ["m"] })
type Caller = (typeof CurrentCaller)["Service"]

const createOnce = (caller: Caller, given = input) =>
  Effect.flatMap(Credentials, (credentials) =>
    Effect.provideService(credentials.createOnce(given, key), CurrentCaller, caller)
  )
const diedOf = (exit: Exit.Exit<unknown, unknown>) =>
  Exit.isFailure(exit) ? String(Cause.squash(exit.cause)) : "nothing"

describe("a repeated create (SECURITY.md, Idempotency records)", () => {
  it.effect("is answered with the other's result if both came at the same time", () =>
    Effect.gen(function* () {
      const caller = yield* newTenant
      const made = yield* createOnce(caller)
      let asked = 0
      const late = yield* instead(IdempotencyRecords, (records) => ({
        ...records,
        find: (...row) => (++asked === 1 ? Effect.succeedNone : records.find(...row))
      }))
      assert.deepEqual(yield* Effect.provideService(createOnce(caller), Credentials, late), { ...made, replayed: true })
      assert.strictEqual((yield* Memory).credentials.size, 1)
    }).pipe(Effect.provide(service))
  )

  it.effect("fails if its idempotency record disappears meanwhile", () =>
    Effect.gen(function* () {
      const caller = yield* newTenant
      yield* createOnce(caller)
      const forgetful = yield* instead(IdempotencyRecords, (records) => ({
        ...records,
        find: () => Effect.succeedNone
      }))
      const died = yield* Effect.exit(Effect.provideService(createOnce(caller), Credentials, forgetful))
      assert.strictEqual(diedOf(died), "Error: The conflicting idempotency record has disappeared")
    }).pipe(Effect.provide(service))
  )

  it.effect("brings nothing back after its credential was deleted (L11)", () =>
    Effect.gen(function* () {
      const caller = yield* newTenant
      const { credential } = yield* createOnce(caller)
      yield* remove(caller, credential.id)
      for (let n = 0; n < 2; n++) assert.instanceOf(yield* Effect.flip(createOnce(caller)), Conflict)
      assert.strictEqual((yield* Memory).credentials.size, 0)
    }).pipe(Effect.provide(service))
  )

  it.effect("is recognised by hashes whose definition must not change", () =>
    Effect.gen(function* () {
      const caller = yield* newTenant
      const { account_id } = caller
      const { credential } = yield* createOnce(caller)
      const mac = (...parts: ReadonlyArray<unknown>) =>
        createHmac("sha256", "k").update(JSON.stringify(parts)).digest("hex")
      const { key: _, ...fields } = input
      const given = Object.entries(fields).sort()
      const [record] = (yield* Memory).records.values()
      assert.deepStrictEqual(
        [record?.key_hash, record?.fingerprint].map((bytes) => Buffer.from(bytes ?? []).toString("hex")),
        [mac("byok/idempotency-key/1", account_id), mac("byok/fingerprint/1", account_id, credential.id, given)]
      )
    }).pipe(Effect.provide(service))
  )
})

describe("the actor of a create", () => {
  it.effect("reaches the store: the API key, or a program in process", () =>
    Effect.gen(function* () {
      const { account_id, hash } = yield* newTenant
      const seen: Array<Actor> = []
      const noting = <A, E, R>(effect: Effect.Effect<A, E, R>) =>
        Effect.andThen(
          Effect.map(CurrentActor, (actor) => void seen.push(actor)),
          effect
        )
      const repository = yield* instead(CredentialRepository, (port) => ({
        ...port,
        insert: (...row) => noting(port.insert(...row))
      }))
      const service = yield* instead(IdempotencyRecords, (port) => ({
        ...port,
        insert: (...row) => noting(port.insert(...row))
      }))
      for (const caller of [{ account_id }, { account_id, api_key_hash: hash }]) {
        yield* Effect.provideService(repository.create(input), CurrentCaller, caller)
        const name = IdempotencyKey.make(`k${seen.length}`)
        yield* Effect.provideService(service.createOnce(input, name), CurrentCaller, caller)
      }
      const byKey = { kind: "api_key", api_key_hash: hash }
      assert.deepEqual<unknown>(seen, [{ kind: "in_process" }, { kind: "in_process" }, byKey, byKey])
    }).pipe(Effect.provide(service))
  )
})
