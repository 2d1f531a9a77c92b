import { openKey } from "../../../src/service/credentials/StoredKey.ts"
import { NodeCrypto } from "@effect/platform-node"
import {
  Arbitrary,
  Cause,
  Context,
  DateTime,
  Duration,
  Effect,
  Exit,
  Layer,
  Option,
  Redacted,
  Result,
  Schema
} from "effect"
import { Credential } from "../../../src/domain/Credential.ts"
import { InvalidParams, NotFound, ServiceUnavailable } from "../../../src/domain/Errors.ts"
import { type AccountId, CredentialId } from "../../../src/domain/Identifiers.ts"
import { AccountRepository } from "../../../src/port/AccountRepository.ts"
import { Cipher, SealingRefused, UnknownKeyId } from "../../../src/port/Cipher.ts"
import { RequestTimeout } from "../../../src/runtime/Deadline.ts"
import { CredentialRepository, type StoredCredential } from "../../../src/port/CredentialRepository.ts"
import { Credentials, StoredKeyUnusable } from "../../../src/port/Credentials.ts"
import * as CredentialsLive from "../../../src/service/credentials/Credentials.ts"
import { contextOf } from "../../../src/domain/SealedKey.ts"
import { addApiKey, newHash, newTenant } from "../../support/database/newTenant.ts"
import { stores } from "../../support/database/stores.ts"
import { ringOf } from "../../support/keys/keyrings.ts"
import { acceptedBody, changesBody, elementOf, givenKey } from "../../support/memory/arbitraries.ts"
import { cipherOn, own } from "../../support/memory/inMemory.ts"
import { assert, type It, layerLive } from "../../support/it.ts"
import { as, create, instead, remove, update } from "../../support/service/asTenant.ts"
import { DatabaseFailure } from "../../../src/port/DatabaseFailure.ts"
import { defaultSettings } from "../../support/service/defaultSettings.ts"

const encode = Schema.encodeSync(Credential)
const key = "sk-0123456789-0123456789-AbCd"
const otherKey = "sk-9876543210-9876543210-WxYz"

type Parts = Layer.Success<ReturnType<typeof serviceOn>>
const serviceOn = (store: (typeof stores)[number][1]) =>
  CredentialsLive.layer.pipe(
    Layer.provideMerge(cipherOn(ringOf("kek"))),
    Layer.provideMerge(store),
    Layer.provideMerge(NodeCrypto.layerSecureRandom),
    Layer.provideMerge(defaultSettings)
  )

const stored = (account_id: AccountId, id: CredentialId) =>
  Effect.flatMap(CredentialRepository, ({ findSealed }) => Effect.map(findSealed(account_id, id), Option.getOrThrow))

const opened = Effect.fnUntraced(function* (account_id: AccountId, { credential, sealed }: StoredCredential) {
  return Result.match(openKey(yield* Cipher, sealed, contextOf({ ...credential, account_id })), {
    onFailure: ({ _tag }): string => _tag,
    onSuccess: (found) => Redacted.value(found)
  })
})

/** A credential of a tenant of its own. */
const made = Effect.fnUntraced(function* (body: object = { provider: "openai", key }) {
  const tenant = yield* newTenant
  return { ...tenant, credential: yield* create(tenant, body) }
})

const issuesOf = <A, E, R>(request: Effect.Effect<A, E, R>) =>
  Effect.map(Effect.flip(request), (error) =>
    error instanceof InvalidParams
      ? error.error.metadata.issues.map(({ message, path }) => `${path.join(".")}: ${message}`)
      : [String(error)]
  )

/** Changes a row by SQL, as anybody with write access to the database can. */
const tamper = Effect.fnUntraced(function* (account_id: AccountId, id: CredentialId, change: Partial<Credential>) {
  const { credential, key_version, revision } = yield* stored(account_id, id)
  const altered = { ...credential, ...change }
  const { update } = yield* CredentialRepository
  yield* update(account_id, { credential: altered, revision, key_version, sealed: undefined, fields: ["name"] })
})

const given = Arbitrary.all({
  body: acceptedBody(givenKey),
  changes: changesBody,
  sameKey: elementOf([true, false])
})

const contract = (it: It<Parts>) => {
  it.effect.prop(
    "reseals the key with the changed members, and changes nothing if repeated (L6, L8)",
    [given],
    function* ([{ body, changes, sameKey }]) {
      const { account_id } = yield* newTenant
      const all = sameKey ? { ...changes, key: body["key"] } : changes
      yield* own(account_id, body)
      yield* own(account_id, all)
      const { id } = yield* create({ account_id }, body)
      const before = yield* stored(account_id, id)
      const first = yield* Effect.exit(update({ account_id }, id, all))
      const after = yield* stored(account_id, id)
      const expectedKey = all["key"] ?? body["key"]
      if (Exit.isFailure(first)) {
        assert.deepEqual(after, before)
        return
      }
      assert.deepEqual(encode(first.value), encode(after.credential))
      assert.strictEqual(yield* opened(account_id, after), expectedKey)
      const isSame = JSON.stringify(encode(after.credential)) === JSON.stringify(encode(before.credential))
      const keptKey = expectedKey === body["key"]
      assert.strictEqual(after.revision, isSame && keptKey ? 1 : 2)
      assert.strictEqual(after.key_version, keptKey ? 1 : 2)
      const policy = ({ label: _, name: __, ...rest }: Credential) => JSON.stringify(rest)
      if (policy(after.credential) !== policy(before.credential)) {
        const old = { ...after, credential: before.credential }
        assert.strictEqual(yield* opened(account_id, old), "AuthenticationFailed")
      }
      assert.deepEqual(yield* update({ account_id }, id, all), first.value)
      assert.deepEqual(yield* stored(account_id, id), after)
    },
    { arbitrary: { runs: 40 } }
  )

  it.effect("replaces the key and its label, and keeps id, creation time and order (L10)", function* () {
    const { account_id, credential } = yield* made({ provider: "cohere", key, name: "n", disabled: true })
    yield* create({ account_id }, { provider: "cohere", key })
    const rotated = yield* update({ account_id }, credential.id, { key: otherKey })
    assert.deepEqual(rotated, { ...credential, label: "sk-...WxYz" })
    const row = yield* stored(account_id, credential.id)
    assert.deepEqual([row.revision, row.key_version, yield* opened(account_id, row)], [2, 2, otherKey])
  })

  const gone = new UnknownKeyId({ kek_id: "gone" })
  it.effect.each([
    ["stored key cannot be opened", { read: () => Result.fail(gone) }, false],
    ["new seal is refused", { seal: () => Effect.fail(new SealingRefused({ reason: "no wraps" })) }, true]
  ] as const)("can change nothing but the name if the %s (L7, L8)", function* ([, fault, isDefect]) {
    const { account_id, credential } = yield* made({ provider: "openai", key, declared_region: "global" })
    const service = yield* instead(Cipher, (cipher) => ({ ...cipher, ...fault }))
    const without = (body: object) =>
      Effect.provideService(update({ account_id }, credential.id, body), Credentials, service)
    assert.strictEqual((yield* without({ name: "new", disabled: false, allowed_models: null })).name, "new")
    const before = yield* stored(account_id, credential.id)
    const opensOnly = [{ key }, { declared_region: "global" }]
    for (const body of [
      ...(isDefect ? [] : opensOnly),
      { key: otherKey },
      { disabled: true },
      { name: "x", declared_zdr: true }
    ]) {
      const exit = yield* Effect.exit(without(body))
      assert(Exit.isFailure(exit), JSON.stringify(body))
      const type = isDefect ? SealingRefused : StoredKeyUnusable
      assert.deepStrictEqual([Exit.hasDies(exit), Cause.squash(exit.cause) instanceof type], [isDefect, true])
    }
    assert.deepEqual(yield* stored(account_id, credential.id), before)
  })

  it.effect("of an altered credential can change nothing but the name, not even the key (L7)", function* () {
    const { account_id, credential } = yield* made()
    const { id } = credential
    yield* tamper(account_id, id, { allowed_models: ["anything"] })
    const before = yield* stored(account_id, id)
    for (const body of [{ key }, { key: otherKey }, { allowed_models: null }, { disabled: true, name: "x" }]) {
      const exit = yield* Effect.exit(update({ account_id }, id, body))
      assert(Exit.isFailure(exit))
      assert.strictEqual(
        String(Cause.squash(exit.cause)),
        `StoredKeyUnusable: The key of credential ${id} cannot be opened: the credential or its sealed key was altered`
      )
    }
    assert.deepEqual(yield* stored(account_id, id), before)
    assert.strictEqual((yield* update({ account_id }, id, { name: "x" })).name, "x")
    assert.strictEqual(yield* opened(account_id, yield* stored(account_id, id)), "AuthenticationFailed")
    yield* remove({ account_id }, id)
    const again = yield* create({ account_id }, { provider: "openai", key })
    assert.strictEqual(yield* opened(account_id, yield* stored(account_id, again.id)), key)
  })

  it.effect("refuses an added hash that is no API key of the account, but keeps a revoked one (D24)", function* () {
    const { account_id, credential, hash } = yield* made()
    const { id } = credential
    const [leaving, stranger] = [yield* addApiKey(account_id), yield* newTenant]
    yield* update({ account_id }, id, { allowed_api_key_hashes: [hash, leaving] })
    yield* (yield* AccountRepository).revokeApiKey(leaving, yield* DateTime.now)
    const foreign = (index: number) => `allowed_api_key_hashes.${index}: is not an API key of this account`
    for (const unusable of [stranger.hash, yield* newHash]) {
      assert.deepStrictEqual(
        yield* issuesOf(update({ account_id }, id, { allowed_api_key_hashes: [leaving, unusable] })),
        [foreign(1)]
      )
    }
    yield* update({ account_id }, id, { allowed_api_key_hashes: [hash, leaving], disabled: true })
    yield* update({ account_id }, id, { declared_zdr: true })
    yield* update({ account_id }, id, { allowed_api_key_hashes: [hash] })
    assert.deepStrictEqual(yield* issuesOf(update({ account_id }, id, { allowed_api_key_hashes: [leaving] })), [
      foreign(0)
    ])
  })

  it.effect("is allowed in a deleted workspace, like deletion, while listing is refused (D43)", function* () {
    const { account_id, credential, workspace_id } = yield* made()
    const { id } = credential
    yield* (yield* AccountRepository).deleteWorkspace(workspace_id, yield* DateTime.now)
    assert.isTrue((yield* update({ account_id }, id, { disabled: true })).disabled)
    const page = { offset: 0, limit: 10 }
    assert.deepStrictEqual(yield* issuesOf(as({ account_id }, ({ list }) => list(page))), [
      "workspace_id: is required: the default workspace is deleted"
    ])
    assert.deepStrictEqual(yield* issuesOf(as({ account_id }, ({ list }) => list({ ...page, workspace_id }))), [
      "workspace_id: is not a workspace of this account"
    ])
    yield* remove({ account_id }, id)
    assert.instanceOf(yield* Effect.flip(update({ account_id }, id, { name: "x" })), NotFound)
  })

  it.effect.each([
    ["is stored after it lost a race to another update", 1, true],
    ["is stored after it lost 30 races to other updates", 30, true],
    ["fails at its timeout if it loses every race to other updates", Number.POSITIVE_INFINITY, false]
  ] as const)("%s (L9)", function* ([, losses, isStored]) {
    const { account_id, credential } = yield* made()
    let lost = 0
    const timeout = Duration.millis(isStored ? 60_000 : 300)
    const racing = instead(CredentialRepository, (repository) => ({
      ...repository,
      update: (account_id, given) =>
        Effect.gen(function* () {
          if (lost < losses) yield* tamper(account_id, credential.id, { name: `theirs ${(lost += 1)}` })
          return yield* repository.update(account_id, given)
        }).pipe(Effect.provideContext(Context.make(CredentialRepository, repository)))
    }))
    const service = yield* Effect.provideService(racing, RequestTimeout, timeout)
    const renamed = update({ account_id }, credential.id, { declared_zdr: true })
    const exit = yield* Effect.exit(Effect.provideService(renamed, Credentials, service))
    const row = yield* stored(account_id, credential.id)
    assert.strictEqual(Exit.isSuccess(exit), isStored)
    assert.strictEqual(row.credential.declared_zdr, isStored ? true : null)
    // The deadline may cut between the count of the last loss and its storing.
    const last = isStored ? [losses] : [lost - 1, lost]
    assert.include(
      last.map((n) => `theirs ${n}`),
      row.credential.name
    )
    if (Exit.isSuccess(exit)) return
    const failure = Cause.squash(exit.cause)
    // The deadline may also end a statement.
    const isLate = failure instanceof DatabaseFailure && failure.isUnavailable
    assert.isTrue(failure instanceof ServiceUnavailable || isLate, String(failure))
  })
}

for (const [name, store] of stores.slice(0, 2)) {
  layerLive(serviceOn(store))(`an update ${name}`, contract)
}
