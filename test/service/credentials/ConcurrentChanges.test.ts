import { NodeCrypto } from "@effect/platform-node"
import { Arbitrary, Context, Effect, Exit, Layer, Option, Schema } from "effect"
import { Credential } from "../../../src/domain/Credential.ts"
import { CredentialChanges } from "../../../src/domain/CredentialChanges.ts"
import { CurrentPrincipal } from "../../../src/domain/Principal.ts"
import { Conflict, NotFound } from "../../../src/domain/Errors.ts"
import { type CredentialId, IdempotencyKey } from "../../../src/domain/Identifiers.ts"
import { NewCredential } from "../../../src/domain/NewCredential.ts"
import { Cipher } from "../../../src/port/Cipher.ts"
import { CredentialRepository } from "../../../src/port/CredentialRepository.ts"
import { Credentials } from "../../../src/port/Credentials.ts"
import * as CredentialsLive from "../../../src/service/credentials/Credentials.ts"
import type { Rotation } from "../../../src/service/keyring/Rotation.ts"
import { entriesIn } from "../../support/database/auditEntries.ts"
import { newTenant } from "../../support/database/newTenant.ts"
import { type Ports, ThreeInstances } from "../../support/database/stores.ts"
import { ringOf } from "../../support/keys/keyrings.ts"
import { cipherWith, openedWith, rotationWith } from "../../support/keys/rotating.ts"
import { elementOf, integer } from "../../support/memory/arbitraries.ts"
import { assert, layerLive } from "../../support/it.ts"
import { defaultSettings } from "../../support/service/defaultSettings.ts"

/** Values that members take in turn. */
const values = {
  name: ["one", "two", null],
  disabled: [true, false],
  allowed_models: [["m"], [], null],
  declared_region: ["us", "europe", null],
  declared_zdr: [true, false, null],
  key: ["sk-0123456789-0123456789-AbCd", "sk-9876543210-9876543210-WxYz"]
} as const
type Member = keyof typeof values
const members = Object.keys(values) as ReadonlyArray<Member>

const command = Arbitrary.all({
  kind: elementOf(["update", "update", "update", "update", "delete", "repeat", "rewrap"] as const),
  instance: elementOf([0, 1] as const),
  credential: integer(0, 2),
  member: elementOf(members),
  value: integer(0, 2)
})
type Command = typeof command extends Arbitrary.Arbitrary<infer A> ? A : never

/** Batches of commands that are sent at the same time. */
const history = Arbitrary.array(Arbitrary.array(command, { minLength: 1, maxLength: 5 }), { maxLength: 6 })

/** The expected state of a credential: members, key and number of changes; undefined once deleted. */
interface Expected {
  readonly id: CredentialId
  shown: Record<string, unknown>
  key: string
  revision: number
  key_version: number
  isLive: boolean
}

interface Instance {
  readonly credentials: Credentials["Service"]
  readonly rotation: Rotation["Service"]
}

const encode = Schema.encodeSync(Credential)
const decodeChanges = Schema.decodeUnknownSync(CredentialChanges)
const decodeNew = Schema.decodeUnknownSync(NewCredential)

const rings = [ringOf("a", "b"), ringOf("b", "a")] as const

type Change = (repository: CredentialRepository["Service"]) => CredentialRepository["Service"]

/** An instance of its own on a database, with its own primary key, over repositories that a test may have broken. */
const instanceOn = Effect.fnUntraced(function* (ports: Context.Context<Ports>, ring: string, change: Change) {
  const repository = change(Context.get(ports, CredentialRepository))
  const parts = Context.add(Context.add(ports, CredentialRepository, repository), Cipher, yield* cipherWith(ring))
  const credentials = yield* CredentialsLive.make.pipe(
    Effect.provide(Layer.merge(NodeCrypto.layerSecureRandom, defaultSettings)),
    Effect.provideContext(parts)
  )
  const rotation = yield* Effect.provideContext(rotationWith(ring), ports)
  return { ports, instance: { credentials, rotation } satisfies Instance }
})

/** Of commands at the same time, at most one touches each member of each credential, so that the outcome is certain. */
const distinct = (batch: ReadonlyArray<Command>) => {
  const seen = new Set<string>()
  return batch.filter(({ credential, kind, member }) => {
    const target = kind === "update" ? `${credential} ${member}` : `${kind} ${credential}`
    return !seen.has(target) && seen.add(target)
  })
}

/** Whether every answer and, in the end, every row and the audit log are those of the model. */
const isAsModelled = Effect.fnUntraced(function* (batches: ReadonlyArray<ReadonlyArray<Command>>, change: Change) {
  const { ports, sql } = yield* ThreeInstances
  const first = yield* instanceOn(ports[0], rings[0], change)
  const opened = [first, yield* instanceOn(ports[1], rings[1], change)] as const
  const { account_id } = yield* Effect.provideContext(newTenant, first.ports)
  const as = <A, E, R>(act: Effect.Effect<A, E, R>) =>
    Effect.provideService(act, CurrentPrincipal, { kind: "in_process", account_id })
  const createOnce = ({ credentials }: Instance, n: number) =>
    as(
      credentials.create(
        decodeNew({ provider: "azure", key: values.key[0], name: `name ${n}` }),
        IdempotencyKey.make(`key-${n}`)
      )
    )

  const model = yield* Effect.forEach([0, 1, 2], (n) =>
    Effect.map(createOnce(first.instance, n), ({ credential }): Expected => ({
      id: credential.id,
      shown: encode(credential),
      key: values.key[0],
      revision: 1,
      key_version: 1,
      isLive: true
    }))
  )
  const expectedOf = (n: number) => model[n] ?? assert.fail("no credential")

  const carryOut = ({ credential: n, instance, kind, member, value }: Command): Effect.Effect<unknown, unknown> => {
    const { instance: chosen } = opened[instance]
    const { id } = expectedOf(n)
    switch (kind) {
      case "update": {
        const body = { [member]: values[member][value % values[member].length] }
        return as(chosen.credentials.update(id, decodeChanges(body)))
      }
      case "delete":
        return as(chosen.credentials.delete(id))
      case "repeat":
        return createOnce(chosen, n)
      case "rewrap":
        return chosen.rotation.rewrap({ rate: 10_000 })
    }
  }

  for (const batch of batches.map(distinct)) {
    const exits = yield* Effect.forEach(batch, (one) => Effect.exit(carryOut(one)), { concurrency: "unbounded" })
    const deleting = new Set(batch.flatMap(({ credential, kind }) => (kind === "delete" ? [credential] : [])))
    for (const [index, { credential: n, kind, member, value }] of batch.entries()) {
      const exit = exits[index] ?? assert.fail("no exit")
      const expected = expectedOf(n)
      const failure = Option.getOrUndefined(Exit.findErrorOption(exit))
      if (Exit.isFailure(exit) && failure === undefined) return false
      if (kind === "rewrap" && Exit.isFailure(exit)) return false
      if (kind === "delete" && Exit.isSuccess(exit) !== expected.isLive) return false
      if (kind === "repeat") {
        if (!deleting.has(n) && Exit.isSuccess(exit) !== expected.isLive) return false
        if (Exit.isFailure(exit) && !(failure instanceof Conflict)) return false
      }
      if (kind === "update") {
        if (!expected.isLive || deleting.has(n)) {
          if (Exit.isFailure(exit) && !(failure instanceof NotFound)) return false
          if (!expected.isLive && Exit.isSuccess(exit)) return false
          continue
        }
        if (Exit.isFailure(exit)) return false
        const given = values[member][value % values[member].length] ?? null
        if (member === "key") {
          if (given !== expected.key) {
            expected.key = String(given)
            expected.revision += 1
            expected.key_version += 1
            expected.shown = { ...expected.shown, label: given === values.key[0] ? "sk-...AbCd" : "sk-...WxYz" }
          }
        } else if (JSON.stringify(expected.shown[member]) !== JSON.stringify(given)) {
          expected.shown = { ...expected.shown, [member]: given }
          expected.revision += 1
        }
      }
    }
    for (const n of deleting) expectedOf(n).isLive = false
  }

  const { findSealed, list } = Context.get(first.ports, CredentialRepository)
  const live = model.filter(({ isLive }) => isLive)
  const entries = (yield* entriesIn(sql)).flat()
  for (const { id, isLive, key, key_version, revision, shown } of model) {
    const row = Option.getOrUndefined(yield* findSealed(account_id, id))
    if ((row !== undefined) !== isLive) return false
    const acts = entries.filter((event) => "credential_id" in event && event.credential_id === id)
    const deletions = acts.filter(({ action }) => action === "credential.delete")
    if (deletions.length !== (isLive ? 0 : 1)) return false
    const revisions = acts.flatMap((event) => (event.action === "credential.update" ? [event.revision] : []))
    if (revisions.some((one, index) => one !== index + 2)) return false
    if (row === undefined) continue
    if (JSON.stringify(encode(row.credential)) !== JSON.stringify({ ...encode(row.credential), ...shown })) return false
    if (row.revision !== revision || row.key_version !== key_version) return false
    if (revisions.length !== revision - 1) return false
    const keys = yield* Effect.provideContext(openedWith(rings[0], [{ account_id, id, key }]), first.ports)
    if (keys[0] !== key) return false
  }
  const { workspace_id } = model[0]?.shown as { readonly workspace_id: Credential["workspace_id"] }
  const { credentials } = yield* list(account_id, { workspace_id, provider: undefined, offset: 0, limit: 100 })
  return (
    credentials
      .map(({ id }) => id)
      .toSorted()
      .join() ===
    live
      .map(({ id }) => id)
      .toSorted()
      .join()
  )
})

layerLive(ThreeInstances.layer)("two instances over one database", (it) => {
  it.effect.prop(
    "answer and store as a simple model does under interleaved updates, deletions, repeats and rewraps (L9, L11)",
    [history],
    ([batches]) =>
      Effect.map(Effect.scoped(isAsModelled(batches, (repository) => repository)), (isRight) => assert.isTrue(isRight)),
    { arbitrary: { runs: 15 } }
  )

  it.effect("store all concurrent renames of one credential, one after the other (L9)", function* () {
    const { ports } = yield* ThreeInstances
    const [one, other] = [
      yield* instanceOn(ports[0], rings[0], (repository) => repository),
      yield* instanceOn(ports[1], rings[1], (repository) => repository)
    ]
    const { account_id } = yield* Effect.provideContext(newTenant, one.ports)
    const as = <A, E, R>(act: Effect.Effect<A, E, R>) =>
      Effect.provideService(act, CurrentPrincipal, { kind: "in_process", account_id } as const)
    const create = decodeNew({ provider: "azure", key: values.key[0] })
    const { credential } = yield* as(one.instance.credentials.create(create, undefined))
    const names = Array.from({ length: 40 }, (_, n) => `name ${n}`)
    const renamed = yield* Effect.forEach(
      names,
      (name, n) => as((n % 2 ? one : other).instance.credentials.update(credential.id, decodeChanges({ name }))),
      { concurrency: "unbounded" }
    )
    assert.deepStrictEqual(
      renamed.map(({ name }) => name),
      names
    )
    const found = yield* Context.get(one.ports, CredentialRepository).findSealed(account_id, credential.id)
    assert.strictEqual(Option.getOrThrow(found).revision, 1 + names.length)
  })

  /** Waits until this many have read and are about to write. */
  const allAtOnce = (count: number) => {
    let waiting: Array<() => void> = []
    return Effect.callback<true>((resume) => {
      waiting.push(() => resume(Effect.succeed(true)))
      if (waiting.length < count) return
      const released = waiting
      waiting = []
      for (const release of released) release()
    })
  }
  const ofFour = allAtOnce(4)

  const both = { instance: 0, credential: 0, value: 0 } as const
  const racing: ReadonlyArray<ReadonlyArray<Command>> = [
    (["name", "allowed_models", "declared_zdr", "declared_region"] as const).map((member, index) => ({
      ...both,
      kind: "update",
      instance: index % 2 === 0 ? 0 : 1,
      member
    }))
  ]
  const deleting: ReadonlyArray<ReadonlyArray<Command>> = [
    [{ ...both, kind: "delete", member: "name" }],
    [{ ...both, kind: "delete", member: "name", instance: 1 }]
  ]
  const broken: ReadonlyArray<readonly [string, ReadonlyArray<ReadonlyArray<Command>>, Change]> = [
    [
      "updates regardless of the revision",
      racing,
      (repository) => ({
        ...repository,
        update: Effect.fnUntraced(function* (account_id, given) {
          yield* ofFour
          for (;;) {
            const { revision } = Option.getOrThrow(yield* repository.findSealed(account_id, given.credential.id))
            if (yield* repository.update(account_id, { ...given, revision })) return true
          }
        })
      })
    ],
    [
      "reports an update that it did not store",
      racing,
      (repository) => ({
        ...repository,
        update: (account_id, given) => Effect.as(Effect.andThen(ofFour, repository.update(account_id, given)), true)
      })
    ],
    [
      "reports the deletion of a credential that was already gone",
      deleting,
      (repository) => ({
        ...repository,
        delete: (account_id, id) => Effect.as(repository.delete(account_id, id), true)
      })
    ]
  ]

  it.effect.each(broken)("differ from the model if the repository %s (control)", function* ([, batches, change]) {
    assert.isTrue(yield* Effect.scoped(isAsModelled(batches, (repository) => repository)))
    assert.isFalse(yield* Effect.scoped(isAsModelled(batches, change)))
  })
})
