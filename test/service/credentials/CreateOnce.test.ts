import { createHmac } from "node:crypto"
import { Arbitrary, Cause, DateTime, Effect, Exit, Layer, Option, Redacted, Result, Schema } from "effect"
import { isDeepStrictEqual } from "node:util"
import { Conflict, InvalidParams } from "../../../src/domain/Errors.ts"
import { type AccountId, IdempotencyKey } from "../../../src/domain/Identifiers.ts"
import { NewCredential } from "../../../src/domain/NewCredential.ts"
import { AccountRepository } from "../../../src/port/AccountRepository.ts"
import { Cipher, UnknownKeyId } from "../../../src/port/Cipher.ts"
import { CredentialRepository, PoolFull } from "../../../src/port/CredentialRepository.ts"
import { Credentials } from "../../../src/port/Credentials.ts"
import { IdempotencyRecords } from "../../../src/port/IdempotencyRecords.ts"
import { acceptedBody, elementOf, givenKey, oneOf, text } from "../../support/memory/arbitraries.ts"
import { inMemory, own } from "../../support/memory/inMemory.ts"
import { Memory } from "../../support/memory/Memory.ts"
import { ringOf } from "../../support/keys/keyrings.ts"
import { cipherWith, rotationWith } from "../../support/keys/rotating.ts"
import { addWorkspace, newTenant } from "../../support/database/newTenant.ts"
import { create, createOnce as createOnceAs, instead, update } from "../../support/service/asTenant.ts"
import { assert, describe, it, itWith } from "../../support/it.ts"

const service = inMemory()

const inService = itWith(service)

type Body = Readonly<Record<string, unknown>>

const decode = Schema.decodeUnknownSync(NewCredential)
const minimal = { provider: "openai", key: "sk-0123456789-0123456789-AbCd" }

/** The meaning of a body: its decoded members, with the key in the clear. */
const saying = (body: Body) => {
  const { key, material: _, ...rest } = decode(body)
  return { ...rest, key: Redacted.value(key) }
}

/** A body that names the default workspace of the account, another one, or none. */
interface Given {
  readonly body: Body
  readonly workspace: "default" | "another" | undefined
}

const workspace = elementOf<Given["workspace"]>([undefined, undefined, "default", "another"])

const idempotencyKey = Arbitrary.schema(IdempotencyKey)

/** An equivalent body: members in another order, explicit defaults, and an unknown member. */
const rewritten = (body: Body): Body => ({
  unknown: 1,
  ...Object.fromEntries(Object.entries(saying(body)).reverse())
})

/** The body with one member changed, if the result is accepted. */
const changed = (body: Body, { member, value }: { readonly member: string; readonly value: unknown }): Body => {
  const other = { ...body, [member]: value }
  return Option.isSome(Schema.decodeUnknownOption(NewCredential)(other)) ? other : body
}

/** The body with another plain key under the same label. */
const underTheSameLabel = (body: Body): Body => {
  const characters = Array.from(saying(body).key)
  const middle = Math.floor(characters.length / 2)
  const value = characters.with(middle, characters[middle] === "x" ? "y" : "x").join("")
  return changed(body, { member: "key", value })
}

const change = oneOf<{ readonly member: string; readonly value: unknown }>(
  Arbitrary.map(givenKey, (value) => ({ member: "key", value })),
  Arbitrary.map(text(0, 3), (value) => ({ member: "name", value })),
  Arbitrary.map(elementOf([null, [], ["m"], ["m", "m"], ["n"]]), (value) => ({ member: "allowed_models", value })),
  Arbitrary.map(elementOf([null, [], ["m"]]), (value) => ({ member: "allowed_user_ids", value })),
  Arbitrary.map(elementOf([null, true, false]), (value) => ({ member: "declared_zdr", value })),
  Arbitrary.map(elementOf([null, "global"]), (value) => ({ member: "declared_region", value })),
  Arbitrary.map(elementOf([true, false]), (value) => ({ member: "disabled", value })),
  Arbitrary.map(elementOf([true, false]), (value) => ({ member: "is_byok_only", value })),
  Arbitrary.map(elementOf(["openai", "groq"]), (value) => ({ member: "provider", value }))
)

/** The body with the region that its credential gets written out, or left out. */
const withRegion = (body: Body, isNamed: boolean): Body => {
  const { key, provider } = decode(body)
  const region: unknown =
    /^\s*\{/.test(Redacted.value(key)) && (provider === "openai" || provider === "fireworks")
      ? Reflect.get(Object(JSON.parse(Redacted.value(key))), "region")
      : undefined
  if (region === undefined) return body
  return { ...body, declared_region: isNamed ? (region === "eu" ? "europe" : region) : null }
}

/** Two bodies: equal, equal in other words, different in one member, or unrelated. */
const pairs = Arbitrary.flatMap(
  Arbitrary.all({ body: acceptedBody(givenKey), place: workspace }),
  ({ body: one, place }) =>
    Arbitrary.map(
      Arbitrary.all({
        place: oneOf(Arbitrary.Constant(place), workspace),
        other: oneOf<Body>(
          Arbitrary.Constant(one),
          Arbitrary.Constant(rewritten(one)),
          Arbitrary.Constant(underTheSameLabel(one)),
          Arbitrary.Constant(withRegion(one, true)),
          Arbitrary.Constant(withRegion(one, false)),
          Arbitrary.map(change, (made) => changed(one, made)),
          Arbitrary.map(change, (made) => rewritten(changed(one, made))),
          acceptedBody(givenKey)
        )
      }),
      (other): readonly [Given, Given] => [
        { body: one, workspace: place },
        { body: other.other, workspace: other.place }
      ]
    )
)

const createOnce = (account_id: AccountId, body: Body, key: IdempotencyKey) => createOnceAs({ account_id }, body, key)

const rowCount = Effect.map(Memory, ({ credentials }) => credentials.size)

/** What a plain create of the body stores, except what is new for every credential. */
const stored = Effect.fnUntraced(function* (account_id: AccountId, body: Body) {
  const made = yield* create({ account_id }, body)
  return { ...made, id: undefined, created_at: undefined, sort_order: undefined, key: body["key"] }
})

/** Whether the second body under an idempotency key is answered by what it would create, and is not stored. */
const decidedByWhatIsMeant = Effect.fnUntraced(function* (one: Given, other: Given, key: IdempotencyKey) {
  const { account_id, workspace_id } = yield* newTenant
  const places = { default: workspace_id, another: yield* addWorkspace(account_id) }
  const [left, right] = [one, other].map(({ body, workspace }): Body =>
    workspace === undefined ? body : { ...body, workspace_id: places[workspace] }
  ) as [Body, Body]
  yield* own(account_id, left)
  yield* own(account_id, right)
  const same = isDeepStrictEqual(yield* stored(account_id, left), yield* stored(account_id, right))
  const first = yield* createOnce(account_id, left, key)
  const second = yield* Effect.exit(createOnce(account_id, right, key))
  const isRight = same
    ? isDeepStrictEqual(second, Exit.succeed({ credential: first.credential, replayed: true }))
    : Exit.isFailure(second) && isDeepStrictEqual(Exit.findErrorOption(second), Option.some(Conflict.reused()))
  return !first.replayed && isRight && (yield* rowCount) === 3
})

describe("a create with an idempotency key (SECURITY.md, Idempotency records)", () => {
  it.effect.prop(
    "stores one credential for equivalent bodies, and is refused with a different body (F18)",
    [pairs, idempotencyKey],
    ([[one, other], key]) => Effect.provide(decidedByWhatIsMeant(one, other, key), service),
    { arbitrary: { runs: 200 } }
  )

  const forgetful = [
    [
      "accepts any provider key as the stored one",
      instead(Cipher, (cipher) => ({ ...cipher, read: () => Result.succeed(true as never) }))
    ],
    [
      "keeps no idempotency records",
      instead(IdempotencyRecords, (records) => ({ ...records, find: () => Effect.succeedNone }))
    ]
  ] as const

  it.effect.each(forgetful)("is answered wrongly if the service %s (control)", function* ([, broken]) {
    const checked = yield* Arbitrary.checkEffect(
      Arbitrary.all({ pair: pairs, key: idempotencyKey }),
      ({ key, pair: [one, other] }) =>
        decidedByWhatIsMeant(one, other, key).pipe(
          Effect.catchDefect(() => Effect.succeed(false)),
          Effect.provide(Layer.provideMerge(Layer.effect(Credentials, broken), service))
        ),
      { runs: 300, maxShrinks: 0 }
    )
    assert.strictEqual(checked._tag, "Falsified")
  })

  const key = IdempotencyKey.make("k")

  inService("is replayed even after its workspace and API key are deleted; a new create is refused", function* () {
    const { account_id, hash } = yield* newTenant
    const accounts = yield* AccountRepository
    const workspace_id = yield* addWorkspace(account_id)
    const body = { ...minimal, workspace_id, allowed_api_key_hashes: [hash] }
    const made = yield* createOnce(account_id, body, key)
    yield* accounts.deleteWorkspace(workspace_id, yield* DateTime.now)
    yield* accounts.revokeApiKey(hash, yield* DateTime.now)
    assert.deepEqual(yield* createOnce(account_id, body, key), { ...made, replayed: true })
    const refused = yield* Effect.flip(createOnce(account_id, body, IdempotencyKey.make("another")))
    assert.instanceOf(refused, InvalidParams)
  })

  inService("may name the default workspace when repeated, even after that was deleted (F18)", function* () {
    const { account_id, workspace_id } = yield* newTenant
    const accounts = yield* AccountRepository
    const made = yield* createOnce(account_id, minimal, key)
    yield* accounts.deleteWorkspace(workspace_id, yield* DateTime.now)
    for (const body of [minimal, { ...minimal, workspace_id }]) {
      assert.deepEqual(yield* createOnce(account_id, body, key), { ...made, replayed: true })
    }
  })

  inService("that was refused may be corrected under the same idempotency key", function* () {
    const { account_id } = yield* newTenant
    const wrong = { ...minimal, allowed_api_key_hashes: ["0".repeat(64)] }
    assert.instanceOf(yield* Effect.flip(createOnce(account_id, wrong, key)), InvalidParams)
    assert.isFalse((yield* createOnce(account_id, minimal, key)).replayed)
  })

  inService("is recorded with hashes whose definition must not change", function* () {
    const { account_id } = yield* newTenant
    const said = { ...minimal, allowed_models: ["m"], declared_zdr: false }
    const { credential } = yield* createOnce(account_id, { ...said, disabled: false, name: null }, key)
    const mac = (...parts: ReadonlyArray<unknown>) =>
      createHmac("sha256", key).update(JSON.stringify(parts)).digest("hex")
    const { key: _, ...fields } = said
    const [record] = (yield* Memory).records.values()
    assert.deepStrictEqual(
      [record?.key_hash, record?.fingerprint].map((bytes) => Buffer.from(bytes ?? []).toString("hex")),
      [
        mac("byok/idempotency-key/1", account_id),
        mac("byok/fingerprint/1", account_id, credential.id, Object.entries(fields).sort(), "sk-...AbCd")
      ]
    )
  })

  inService("returns the credential of a concurrent create with its key, and dies without its record", function* () {
    const { account_id } = yield* newTenant
    const made = yield* createOnce(account_id, minimal, key)
    let asked = 0
    const late = yield* instead(IdempotencyRecords, (records) => ({
      ...records,
      find: (...row) => (++asked === 1 ? Effect.succeedNone : records.find(...row))
    }))
    const answer = yield* Effect.provideService(createOnce(account_id, minimal, key), Credentials, late)
    assert.deepEqual(answer, { ...made, replayed: true })
    assert.strictEqual(yield* rowCount, 1)
    const forgetful = yield* instead(IdempotencyRecords, (records) => ({
      ...records,
      find: () => Effect.succeedNone
    }))
    const died = yield* Effect.exit(Effect.provideService(createOnce(account_id, minimal, key), Credentials, forgetful))
    assert(Exit.isFailure(died))
    assert.include(String(Cause.squash(died.cause)), "The conflicting idempotency record has disappeared")
  })

  inService("returns the credential of a concurrent create with its key that filled the pool", function* () {
    const { account_id } = yield* newTenant
    const one = Effect.provideService(createOnce(account_id, minimal, key), Credentials, yield* Credentials)
    const others = [one, Effect.void]
    const last = yield* instead(CredentialRepository, (repository) => ({
      ...repository,
      insert: () =>
        Effect.andThen(Effect.orDie(others.shift() ?? assert.fail()), new PoolFull({ unit: "credentials", limit: 1 }))
    }))
    const full = (key: IdempotencyKey) => Effect.provideService(createOnce(account_id, minimal, key), Credentials, last)
    const { replayed } = yield* full(key)
    assert.isTrue(replayed)
    assert.instanceOf(yield* Effect.flip(full(IdempotencyKey.make("another"))), InvalidParams)
    assert.strictEqual(yield* rowCount, 1)
  })

  inService("fails when repeated without its key-encryption key, and is replayed once it is back (T10)", function* () {
    const { account_id } = yield* newTenant
    const made = yield* createOnce(account_id, minimal, key)
    const down = yield* instead(Cipher, (cipher) => ({
      ...cipher,
      read: () => Result.fail(new UnknownKeyId({ kek_id: "gone" }))
    }))
    const failed = yield* Effect.exit(Effect.provideService(createOnce(account_id, minimal, key), Credentials, down))
    assert.isTrue(Exit.isFailure(failed) && Option.isNone(Exit.findErrorOption(failed)))
    assert.deepEqual(yield* createOnce(account_id, minimal, key), { ...made, replayed: true })
  })

  inService("is replayed after a rewrap even without the old key-encryption key (T10)", function* () {
    const { account_id } = yield* newTenant
    const withRing = (...ids: ReadonlyArray<string>) =>
      Effect.gen(function* () {
        const cipher = yield* cipherWith(ringOf(...ids))
        const credentials = yield* instead(Cipher, () => cipher)
        return yield* Effect.provideService(createOnce(account_id, minimal, key), Credentials, credentials)
      })
    const made = yield* withRing("old")
    assert.isTrue(Exit.isFailure(yield* Effect.exit(withRing("new"))), "control")
    const rotation = yield* rotationWith(ringOf("new", "old"))
    assert.strictEqual((yield* rotation.rewrap({ rate: 1000 })).rewrapped, 1)
    assert.deepEqual(yield* withRing("new"), { ...made, replayed: true })
  })
})

describe("a create that is repeated after its key was replaced", () => {
  inService("is replayed, but is refused if its body differs", function* () {
    const { account_id } = yield* newTenant
    const key = IdempotencyKey.make("once")
    const { credential } = yield* createOnce(account_id, minimal, key)
    const other = { ...minimal, key: "sk-9876543210-9876543210-WxYz" }
    const again = createOnce(account_id, minimal, key)
    assert.isTrue((yield* again).replayed, "control")
    assert.instanceOf(yield* Effect.flip(createOnce(account_id, other, key)), Conflict, "control")
    yield* update({ account_id }, credential.id, { key: other.key })
    const { credential: replayed, ...rest } = yield* again
    assert.deepStrictEqual(rest, { replayed: true })
    assert.deepInclude(replayed, { id: credential.id, label: "sk-...WxYz" })
    for (const body of [other, { ...minimal, name: "n" }]) {
      assert.instanceOf(yield* Effect.flip(createOnce(account_id, body, key)), Conflict)
    }
    assert.strictEqual(yield* rowCount, 1)
  })
})
