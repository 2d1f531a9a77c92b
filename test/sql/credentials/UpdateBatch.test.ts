import { DateTime, Effect, Fiber } from "effect"
import type { CredentialUpdate } from "../../../src/port/CredentialRepository.ts"
import { eventsIn } from "../../support/database/auditEntries.ts"
import { account_id, openLossyStore, uuid, workspace_id } from "../../support/database/lossyStore.ts"
import { plainCredential, plainSealedKey } from "../../support/database/plainCredential.ts"
import { holdOpen, untilWaiting } from "../../support/database/transactions.ts"
import { assert, it } from "../../support/it.ts"

const numbers = [11, 12, 13]
const created_at = DateTime.makeUnsafe(0)

const open = Effect.gen(function* () {
  const { admin, proxy, repository } = yield* openLossyStore
  for (const n of numbers) {
    yield* repository.insert(account_id, plainCredential(workspace_id, uuid(n)), plainSealedKey(n))
  }
  const update = (n: number, given: Partial<CredentialUpdate> = {}, name = `name ${n}`) =>
    repository.update(account_id, {
      credential: {
        ...plainCredential(workspace_id, uuid(n)),
        name,
        allowed_models: ["m", name],
        created_at,
        sort_order: 0
      },
      revision: 1,
      sealed: undefined,
      key_version: 1,
      fields: ["name", "allowed_models"],
      ...given
    })
  const rows = Effect.map(
    admin<{ line: string }>`
      SELECT concat_ws(' ', name, allowed_models::text, revision, key_version, get_byte(sealed, 0)) AS line
      FROM credentials ORDER BY id`,
    (found) => found.map(({ line }) => line)
  )
  const acts = Effect.map(eventsIn(admin), (events) =>
    events
      .slice(numbers.length)
      .map((event) =>
        [
          event.action,
          "credential_id" in event ? event.credential_id.slice(-2) : "",
          ...("revision" in event ? [event.revision] : [])
        ].join(" ")
      )
  )
  return { admin, acts, proxy, rows, update }
})

const together = <A, E>(all: ReadonlyArray<Effect.Effect<A, E>>) => Effect.all(all, { concurrency: "unbounded" })

it.live("stores and audits each of several concurrent updates once, even if the answer is lost (L9)", function* () {
  const { acts, proxy, rows, update } = yield* open
  proxy.loseAnswer("SELECT 3")
  const rotated = { sealed: plainSealedKey(77), key_version: 2, fields: ["key", "name", "allowed_models"] } as const
  assert.deepStrictEqual(yield* together([update(11), update(12, rotated), update(13)]), [true, true, true])
  assert.strictEqual(proxy.lost(), 1)
  assert.deepStrictEqual(yield* rows, [
    'name 11 {m,"name 11"} 2 1 11',
    'name 12 {m,"name 12"} 2 2 77',
    'name 13 {m,"name 13"} 2 1 13'
  ])
  assert.deepStrictEqual((yield* acts).toSorted(), [
    "credential.rotate 12",
    "credential.update 11 2",
    "credential.update 12 2",
    "credential.update 13 2"
  ])
})

it.live("an update of a locked row does not delay concurrent updates of other rows (L7)", function* () {
  const { admin, rows, update } = yield* open
  const release = yield* holdOpen(admin, `SELECT FROM credentials WHERE id = '${uuid(12)}' FOR UPDATE`)
  const updates = yield* Effect.forkChild(together(numbers.map((n) => update(n))), { startImmediately: true })
  yield* untilWaiting(admin, 1)
  const stored = (yield* rows).map((line) => line.includes("name"))
  assert.deepStrictEqual(stored, [true, false, true])
  yield* release
  assert.deepStrictEqual(yield* Fiber.join(updates), [true, true, true])
  assert.include((yield* rows)[1], "name 12")
})

it.live("stores only the first of several concurrent updates of one credential (L9)", function* () {
  const { rows, update } = yield* open
  const updates = [update(11), update(12), update(12, {}, "late"), update(13)]
  assert.deepStrictEqual(yield* together(updates), [true, true, false, true])
  assert.include((yield* rows)[1], "name 12")
})
