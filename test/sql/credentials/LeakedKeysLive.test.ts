import { Arbitrary, Effect, Option, Result } from "effect"
import { inconclusiveLabel } from "../../../src/domain/KeyMaterial.ts"
import { labelOf } from "../../../src/domain/labelOf.js"
import { KekRegistry } from "../../../src/port/KekRegistry.ts"
import { LeakedKeys } from "../../../src/port/LeakedKeys.ts"
import { entriesIn, eventsIn } from "../../support/database/auditEntries.ts"
import { adminClient, freshDatabase } from "../../support/database/freshDatabase.ts"
import { openBehindProxy } from "../../support/database/lossyStore.ts"
import { newTenant } from "../../support/database/newTenant.ts"
import { insertPlain, plainCredential, plainSealedKey } from "../../support/database/plainCredential.ts"
import { Store } from "../../support/database/stores.ts"
import { anyString } from "../../support/memory/arbitraries.ts"
import { assert, describe, it } from "../../support/it.ts"

/** Stores a credential and answers with its key as a search finds it. */
const newKey = Effect.gen(function* () {
  const { account_id, workspace_id } = yield* newTenant
  const { id } = yield* insertPlain(account_id, plainCredential(workspace_id), plainSealedKey())
  return { account_id, workspace_id, credential_id: id, key_version: 1 }
})

/** Every page, from the first to the one after which there is none. */
const pagesOf = Effect.fnUntraced(function* <Page extends { readonly next: string | undefined }, E, R>(
  read: (after: string | undefined) => Effect.Effect<Page, E, R>
) {
  const pages = [yield* read(undefined)]
  for (let after = pages[0]?.next; after !== undefined; after = pages.at(-1)?.next) pages.push(yield* read(after))
  return pages
})
const sum = (counts: ReadonlyArray<number>) => counts.reduce((all, one) => all + one, 0)

const actionsIn = (sql: Parameters<typeof eventsIn>[0]) =>
  Effect.map(eventsIn(sql), (events) => events.map(({ action }) => action).filter((action) => /leak|park/.test(action)))

describe("the search for a leaked key on PostgreSQL", () => {
  it.live("reads every credential once, page by page, whether its label is suspect or not (L15)", () =>
    Effect.gen(function* () {
      const { sql } = yield* Store
      const { account_id, credential_id } = yield* newKey
      const copied = yield* sql<{ id: string }>`
          INSERT INTO credentials
          SELECT (json_populate_record(c, json_build_object('id', gen_random_uuid(), 'label',
            CASE n % 500 WHEN 0 THEN 'sk-...AbCd' WHEN 1 THEN '{ "...d" }' ELSE 'sk-...Zz' || n % 10 END))).*
          FROM credentials AS c, generate_series(1, 2500) AS n WHERE account_id = ${account_id} RETURNING id`
      const ids = [credential_id, ...copied.map(({ id }) => id)]
      const { countCredentials, scan } = yield* LeakedKeys
      assert.strictEqual(yield* countCredentials, ids.length)
      const all = Effect.fnUntraced(function* (labels: ReadonlyArray<string> | undefined) {
        const pages = yield* pagesOf((after) => scan({ after, labels }))
        assert.strictEqual(sum(pages.map(({ searched }) => searched)), ids.length)
        return pages.flatMap(({ suspects }) => suspects.map(({ context }): string => context.id))
      })
      assert.sameMembers(yield* all(undefined), ids)
      assert.lengthOf(yield* all(["sk-...AbCd"]), 5 + 5 + 1, "with the label, JSON, and one that hides everything")
      assert.lengthOf(yield* all([]), 5 + 1)
    }).pipe(Effect.provide(Store.layer))
  )

  it.live("reads pages of limited bytes, as a rewrap does, and misses no credential with long lists", () =>
    Effect.gen(function* () {
      const { sql } = yield* Store
      const { account_id, credential_id } = yield* newKey
      // A megabyte in each row, which PostgreSQL compresses.
      const copied = yield* sql<{ id: string }>`
          INSERT INTO credentials
          SELECT (json_populate_record(c, json_build_object('id', gen_random_uuid(),
            'allowed_models', ARRAY[repeat('m', 1024 * 1024)]))).*
          FROM credentials AS c, generate_series(1, 12) WHERE account_id = ${account_id} RETURNING id`
      const ids = [credential_id, ...copied.map(({ id }) => id)]
      const { scan } = yield* LeakedKeys
      const pages = yield* pagesOf((after) => scan({ after, labels: undefined }))
      for (const { searched, suspects } of pages) assert.strictEqual(searched, suspects.length)
      const found = pages.map(({ suspects }) => suspects.map(({ context }): string => context.id))
      assert.sameMembers(found.flat(), ids)
      assert.isAtMost(Math.max(...found.map(({ length }) => length)), 9)

      const { rewrapBatch } = yield* KekRegistry
      const batches = yield* pagesOf((after) =>
        rewrapBatch({ primary: "new", after, size: 500 }, () =>
          Result.succeed({ kek_id: "new", wrapped_dek: new Uint8Array(60) })
        )
      )
      const counts = batches.map(({ rewrapped }) => rewrapped)
      assert.strictEqual(sum(counts), ids.length)
      assert.isAtMost(Math.max(...counts), 9)
    }).pipe(Effect.provide(Store.layer))
  )

  it.live("treats the same labels as inconclusive as the domain does (L15)", function* () {
    const sql = yield* adminClient(yield* freshDatabase)
    const keys = yield* Arbitrary.sampleEffect(anyString, { count: 2000, seed: 1 })
    const json = keys.map((key) => JSON.stringify({ key }))
    const labels = [...keys, ...json].map(labelOf)
    const rows = yield* sql<{ is: boolean }>`
        SELECT label ~ ${inconclusiveLabel.source} AS is FROM unnest(${labels}::text[]) WITH ORDINALITY AS t (label, n) ORDER BY n`
    const expected = labels.map((label) => inconclusiveLabel.test(label))
    assert.deepStrictEqual(
      rows.map(({ is }) => is),
      expected
    )
    assert.includeMembers(expected, [true, false], "control")
  })

  it.live("audits a search and its parkings once, in one transaction, even if the answer is lost (L16)", function* () {
    const { ports, proxy, sql } = yield* openBehindProxy
    yield* Effect.gen(function* () {
      const key = yield* newKey
      const { conclude } = yield* LeakedKeys
      const { clear } = yield* LeakedKeys
      proxy.loseAnswer("COMMIT")
      assert.deepStrictEqual(yield* conclude({ keys: [key], searched: 3, park: true }), [true])
      assert.deepStrictEqual(yield* actionsIn(sql), ["leak.search", "credential.park"])
      proxy.loseAnswer("COMMIT")
      assert.deepStrictEqual(Option.getOrThrow(yield* clear(key.account_id, key.credential_id)), key)
      assert.deepStrictEqual(yield* actionsIn(sql), ["leak.search", "credential.park", "credential.unpark"])
      assert.strictEqual(proxy.lost(), 2)

      const old = { ...key, key_version: 7 }
      assert.deepStrictEqual(yield* conclude({ keys: [old, key], searched: 3, park: true }), [false, true])
      assert.lengthOf(yield* sql`SELECT 1 FROM credential_parkings WHERE key_version = 1`, 1)

      yield* sql`ALTER TABLE audit_entries ADD CONSTRAINT broken CHECK (events::text NOT LIKE '%park%') NOT VALID`
      const other = yield* newKey
      const before = yield* entriesIn(sql)
      yield* Effect.exit(conclude({ keys: [other], searched: 2, park: true }))
      assert.lengthOf(yield* sql`SELECT 1 FROM credential_parkings WHERE credential_id = ${other.credential_id}`, 0)
      assert.deepStrictEqual(yield* entriesIn(sql), before, "nor is the search recorded")
    }).pipe(Effect.provide(ports))
  })
})
