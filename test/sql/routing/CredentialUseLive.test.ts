import { randomUUID } from "node:crypto"
import { Effect, Fiber } from "effect"
import { neverUsed, useFromLease, useFromOutcome } from "../../../src/domain/routing/LastUse.ts"
import { CredentialUse } from "../../../src/port/CredentialUse.ts"
import { KekRegistry } from "../../../src/port/KekRegistry.ts"
import { Parkings } from "../../../src/port/Parkings.ts"
import { CredentialRepository } from "../../../src/port/CredentialRepository.ts"
import { newTenant } from "../../support/database/newTenant.ts"
import { insertPlain, plainCredential, plainSealedKey } from "../../support/database/plainCredential.ts"
import { Store } from "../../support/database/stores.ts"
import { holdOpen, lockTable, untilWaiting, waitingForLock } from "../../support/database/transactions.ts"
import { assert, describe, it } from "../../support/it.ts"

const newCredential = Effect.gen(function* () {
  const { account_id, workspace_id } = yield* newTenant
  const { id } = yield* insertPlain(account_id, plainCredential(workspace_id, randomUUID()), plainSealedKey())
  return { account_id, credential_id: id }
})

const year = 31_536_000_000

describe("last uses that are stored together", () => {
  it.live.each([["credentials"], ["credential_use"]])(
    "do not wait for another transaction's lock on a row of %s",
    function* ([table]) {
      yield* Effect.gen(function* () {
        const { sql } = yield* Store
        const { find, store } = yield* CredentialUse
        const [one, other, gone] = [yield* newCredential, yield* newCredential, yield* newCredential]
        yield* store([{ ...one, ...useFromLease(1) }])
        yield* (yield* CredentialRepository).delete(gone.account_id, gone.credential_id)
        const uses = [one, other, gone].map((of) => ({ ...of, ...useFromLease(2) }))
        const leasedAt = ({ account_id, credential_id }: typeof one) =>
          Effect.map(find(account_id, [credential_id]), (found) => found.get(credential_id)?.last_leased_at)
        const release = yield* holdOpen(sql, `SELECT FROM ${table} WHERE account_id = '${one.account_id}' FOR UPDATE`)
        // Waiting would end in an error, at the statement's timeout.
        const locked = yield* store(uses)
        assert.deepStrictEqual(locked, uses.slice(0, 1), "what is deleted is not stored again and again")
        assert.deepStrictEqual([yield* leasedAt(one), yield* leasedAt(other)], [1, 2])
        assert.strictEqual(yield* waitingForLock(sql), 0)
        yield* release
        assert.deepStrictEqual(yield* store(locked), [])
        assert.strictEqual(yield* leasedAt(one), 2)
      }).pipe(Effect.provide(Store.layer))
    }
  )

  it.live("are stored, and readiness is checked, while cooldowns wait for their table", function* () {
    yield* Effect.gen(function* () {
      const { sql } = yield* Store
      const [credential, { store }] = [yield* newCredential, yield* CredentialUse]
      const parkings = yield* Parkings
      const release = yield* lockTable(sql, "credential_parkings")
      const cooldown = {
        model: "",
        key_version: 1,
        epoch: 0,
        cause: "rejected",
        strikes: 1,
        remaining: 60_000
      } as const
      const parking = yield* Effect.forkChild(parkings.store([{ ...credential, ...cooldown }]))
      yield* untilWaiting(sql, 1)
      assert.deepStrictEqual(yield* store([{ ...credential, ...useFromLease(1) }]), [])
      assert.strictEqual(yield* (yield* KekRegistry).sealPermission("kek", ["kek"]), "foreign")
      assert.deepStrictEqual(yield* (yield* KekRegistry).countExcept(["kek-1"], 1), [])
      assert.strictEqual(yield* waitingForLock(sql), 1, "the cooldown waits still")
      yield* release
      assert.deepStrictEqual(yield* Fiber.join(parking), [])
    }).pipe(Effect.provide(Store.layer))
  })

  it.live("are at most of now: a success by a clock that is a year ahead hides no later failure", function* () {
    yield* Effect.gen(function* () {
      const { find, store } = yield* CredentialUse
      const credential = yield* newCredential
      const stored = Effect.map(
        find(credential.account_id, [credential.credential_id]),
        (found) => found.get(credential.credential_id) ?? neverUsed
      )
      const rejectedAt = (at: number) => store([{ ...credential, ...useFromOutcome({ _tag: "Rejected" }, at, 1) }])
      yield* store([{ ...credential, ...useFromOutcome({ _tag: "Succeeded" }, Date.now() + year, 1) }])
      assert.closeTo((yield* stored).last_succeeded_at ?? 0, Date.now(), 60_000)
      assert.isNull((yield* stored).refused_since, "what never was is not now")
      yield* rejectedAt(Date.now() + 1)
      const { last_failed_at, last_succeeded_at } = yield* stored
      assert.isAtLeast(last_failed_at ?? 0, last_succeeded_at ?? Infinity)
    }).pipe(Effect.provide(Store.layer))
  })
})
