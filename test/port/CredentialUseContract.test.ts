import { randomUUID } from "node:crypto"
import { assert } from "@effect/vitest"
import { Effect, Option } from "effect"
import { CredentialId } from "../../src/domain/Identifiers.ts"
import { type LastUse, leasedAt, neverUsed, reportedAt } from "../../src/domain/routing/LastUse.ts"
import { CredentialPools } from "../../src/port/CredentialPools.ts"
import { CredentialRepository } from "../../src/port/CredentialRepository.ts"
import { CredentialUse } from "../../src/port/CredentialUse.ts"
import { newTenant } from "../support/database/newTenant.ts"
import { insertPlain, plainCredential, plainSealedKey } from "../support/database/plainCredential.ts"
import { stores } from "../support/database/stores.ts"
import { layerLive } from "../support/process/layerLive.ts"

/** A credential, and how its last use is stored and found. */
const newCredential = Effect.gen(function* () {
  const { account_id, workspace_id } = yield* newTenant
  const { find, store } = yield* CredentialUse
  const { id } = yield* insertPlain(account_id, plainCredential(workspace_id), plainSealedKey(1))
  const key = { account_id, credential_id: id }
  return { key, workspace_id, found: find(account_id, id), seen: (use: LastUse) => store([{ ...key, ...use }]) }
})

const rejectedAt = (at: number) => reportedAt({ _tag: "Rejected" }, at, 1)

for (const [name, store] of stores) {
  layerLive(store)(`the last use of credentials, ${name}`, (it) => {
    it.effect("is the later of each time, with the cause of the last failure, in any order and twice", () =>
      Effect.gen(function* () {
        const { found, seen } = yield* newCredential
        assert.deepStrictEqual(yield* found, Option.none())
        yield* seen(leasedAt(5000))
        assert.deepStrictEqual(yield* found, Option.some(leasedAt(5000)))
        yield* seen(reportedAt({ _tag: "Forbidden" }, 5001, 2))
        for (const _ of ["once", "twice"]) yield* seen({ ...rejectedAt(5000), last_leased_at: 4000 })
        yield* seen(reportedAt({ _tag: "Succeeded" }, 6000, 2))
        const use = {
          ...leasedAt(5000),
          last_succeeded_at: 6000,
          last_failed_at: 5001,
          ...{ last_failure: "forbidden", last_failed_version: 2 }
        }
        assert.deepStrictEqual(yield* found, Option.some(use as LastUse))
        yield* seen(rejectedAt(5002))
        assert.deepStrictEqual(
          yield* found,
          Option.some({ ...(use as LastUse), last_failed_at: 5002, last_failure: "rejected", last_failed_version: 1 })
        )
      })
    )

    it.effect("is of one account, and passed over for credentials that are gone (T6)", () =>
      Effect.gen(function* () {
        const [one, other] = [yield* newCredential, yield* newCredential]
        const { find, store } = yield* CredentialUse
        yield* store([
          { account_id: one.key.account_id, credential_id: CredentialId.make(randomUUID()), ...leasedAt(1) },
          { account_id: one.key.account_id, credential_id: other.key.credential_id, ...leasedAt(2) },
          { ...one.key, ...leasedAt(3) },
          { ...other.key, ...leasedAt(4) }
        ])
        assert.deepStrictEqual(yield* one.found, Option.some(leasedAt(3)))
        assert.deepStrictEqual(yield* other.found, Option.some(leasedAt(4)))
        assert.deepStrictEqual(yield* find(one.key.account_id, other.key.credential_id), Option.none())
      })
    )

    it.effect("is no part of a pool's version: a use makes no router read its pool again (Q19)", () =>
      Effect.gen(function* () {
        const { key, seen, workspace_id } = yield* newCredential
        const { versions } = yield* CredentialPools
        const version = Effect.map(
          versions({ account_id: key.account_id, workspace_id }, ["openai"]),
          Option.getOrThrow
        )
        const before = yield* version
        yield* seen(leasedAt(1))
        yield* seen({ ...leasedAt(2), last_succeeded_at: 3 })
        assert.deepStrictEqual(yield* version, before)
      })
    )

    it.effect("goes with the credential (L13)", () =>
      Effect.gen(function* () {
        const [one, kept] = [yield* newCredential, yield* newCredential]
        for (const { seen } of [one, kept]) yield* seen({ ...neverUsed, ...leasedAt(1) })
        yield* (yield* CredentialRepository).delete(one.key.account_id, one.key.credential_id)
        assert.deepStrictEqual(yield* one.found, Option.none())
        assert.deepStrictEqual(yield* kept.found, Option.some(leasedAt(1)))
      })
    )
  })
}
