import { randomUUID } from "node:crypto"
import { Effect } from "effect"
import { CredentialId } from "../../../src/domain/Identifiers.ts"
import { type ParkingChange, Parkings } from "../../../src/port/Parkings.ts"
import { CredentialRepository } from "../../../src/port/CredentialRepository.ts"
import { newTenant } from "../../support/database/newTenant.ts"
import { insertPlain, plainCredential, plainSealedKey } from "../../support/database/plainCredential.ts"
import { Store } from "../../support/database/stores.ts"
import { holdOpen, waitingForLock } from "../../support/database/transactions.ts"
import { assert, describe, it } from "../../support/it.ts"

const newCredential = Effect.gen(function* () {
  const { account_id, workspace_id } = yield* newTenant
  const { id } = yield* insertPlain(account_id, plainCredential(workspace_id, randomUUID()), plainSealedKey())
  return { account_id, credential_id: id }
})

const rejected = { model: "", key_version: 1, epoch: 0, cause: "rejected", strikes: 1, remaining: 60_000 } as const

describe("parkings that are stored together", () => {
  it.live.each([["pools"], ["credentials"]])(
    "do not wait for another transaction's lock on a row of %s",
    function* ([table]) {
      yield* Effect.gen(function* () {
        const { sql } = yield* Store
        const { store } = yield* Parkings
        const [one, other, gone] = [yield* newCredential, yield* newCredential, yield* newCredential]
        yield* (yield* CredentialRepository).delete(gone.account_id, gone.credential_id)
        const changes: ReadonlyArray<ParkingChange> = [one, other, gone].flatMap((of) => [
          { ...of, ...rejected },
          { ...of, ...rejected, model: "m" }
        ])
        const parked = Effect.map(
          sql<{ id: CredentialId }>`SELECT DISTINCT credential_id AS id FROM credential_parkings`,
          (rows) => rows.map(({ id }) => id)
        )
        const release = yield* holdOpen(sql, `SELECT FROM ${table} WHERE account_id = '${one.account_id}' FOR UPDATE`)
        // Waiting would end in an error, at the statement's timeout.
        const locked = yield* store(changes)
        assert.deepStrictEqual(locked, changes.slice(0, 2), "what is deleted is not stored again and again")
        assert.deepStrictEqual(yield* parked, [other.credential_id])
        assert.strictEqual(yield* waitingForLock(sql), 0)
        yield* release
        assert.deepStrictEqual(yield* store(locked), [])
        assert.sameMembers(yield* parked, [one.credential_id, other.credential_id])
        const raised = yield* sql`SELECT 1 FROM pools WHERE health > 0`
        assert.lengthOf(raised, 2)
      }).pipe(Effect.provide(Store.layer))
    }
  )

  it.live("replace an expired parking instead of being merged with it", function* () {
    yield* Effect.gen(function* () {
      const { sql } = yield* Store
      const { store } = yield* Parkings
      const change = { ...(yield* newCredential), ...rejected }
      const stored = sql`SELECT epoch FROM credential_parkings`
      yield* store([{ ...change, epoch: 1 }])
      yield* store([change])
      assert.deepStrictEqual(yield* stored, [{ epoch: 1 }], "control")
      yield* sql`UPDATE credential_parkings SET parked_at = now() - interval '1 day', until = now() - interval '1 day'`
      yield* store([change])
      assert.deepStrictEqual(yield* stored, [{ epoch: 0 }])
    }).pipe(Effect.provide(Store.layer))
  })
})
