import { assert, describe, it } from "@effect/vitest"
import { Effect, Option } from "effect"
import { CredentialId } from "../../src/domain/Identifiers.ts"
import { AuditLog } from "../../src/port/AuditLog.ts"
import { CredentialRepository } from "../../src/port/CredentialRepository.ts"
import { Audit } from "../../src/service/Audit.ts"
import { eventsIn } from "../support/database/auditEntries.ts"
import { newTenant } from "../support/database/newTenant.ts"
import { plainCredential, plainSealedKey } from "../support/database/plainCredential.ts"
import { openStore } from "../support/database/stores.ts"

/** How many acts: `AUDIT_ACTS`, or 1,000. */
const acts = Number(process.env["AUDIT_ACTS"] || 1000)

describe("the audit log of whole lives", () => {
  it.live(
    "has an event for every create, update, rotation and deletion that took place, and verifies",
    () =>
      Effect.gen(function* () {
        const { ports, sql } = yield* openStore()
        yield* Effect.gen(function* () {
          const { account_id, workspace_id } = yield* newTenant
          const repository = yield* CredentialRepository
          const counts = new Map<string, number>()
          const count = (action: string) => counts.set(action, (counts.get(action) ?? 0) + 1)
          /** Creates, renames, rotates and every other time deletes one credential: three or four acts. */
          const live = Effect.fnUntraced(function* (_: unknown, index: number) {
            const { id } = yield* repository.insert(account_id, plainCredential(workspace_id), plainSealedKey())
            count("credential.create")
            const change = Effect.fnUntraced(function* (field: "name" | "key") {
              const found = Option.getOrThrow(yield* repository.findSealed(account_id, CredentialId.make(id)))
              const { credential, key_version, revision } = found
              const isKey = field === "key"
              const stored = yield* repository.update(account_id, {
                credential: isKey ? credential : { ...credential, name: `name ${index}` },
                revision,
                sealed: isKey ? plainSealedKey() : undefined,
                key_version: isKey ? key_version + 1 : key_version,
                fields: [field]
              })
              assert.isTrue(stored)
              count("credential.update")
              if (isKey) count("credential.rotate")
            })
            yield* change("name")
            yield* change("key")
            if (index % 2 === 1) return
            assert.isTrue(yield* repository.delete(account_id, id))
            count("credential.delete")
          })
          yield* Effect.forEach(Array.from({ length: acts / 4 }), live, { concurrency: 16, discard: true })

          const recorded = yield* eventsIn(sql)
          const found = new Map<string, number>()
          for (const { action } of recorded) {
            if (action.startsWith("credential.")) found.set(action, (found.get(action) ?? 0) + 1)
          }
          assert.deepStrictEqual([...found].toSorted(), [...counts].toSorted())
          assert.isAtLeast(
            [...counts.values()].reduce((sum, n) => sum + n),
            acts
          )
          yield* (yield* AuditLog).seal(60_000)
          const { events, fault, unsealed } = yield* (yield* Audit.make).verify()
          assert.strictEqual(fault, null)
          assert.deepStrictEqual({ events, unsealed }, { events: recorded.length, unsealed: 0 })
        }).pipe(Effect.provide(ports))
      }),
    600_000
  )
})
