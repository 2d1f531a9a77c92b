import { randomUUID } from "node:crypto"
import { Effect, Exit, Fiber, Layer, Option, Redacted, Scope } from "effect"
import type { SqlClient } from "effect/sql"
import { SecureRandom } from "effect/crypto"
import { CredentialId } from "../../../src/domain/Identifiers.ts"
import { contextOf } from "../../../src/domain/SealedKey.ts"
import * as LinkKeysLive from "../../../src/crypto/LinkKeysLive.ts"
import { hashApiKey } from "../../../src/runtime/ApiKey.ts"
import { CredentialRepository } from "../../../src/port/CredentialRepository.ts"
import { KekRegistry } from "../../../src/port/KekRegistry.ts"
import type { RewrapProgress, Rotation } from "../../../src/service/keyring/Rotation.ts"
import { Links } from "../../../src/service/links/Links.ts"
import { eventually } from "../../support/process/eventually.ts"
import { ringOf } from "../../support/keys/keyrings.ts"
import {
  inOrder,
  cipherWith,
  keysOf,
  type Made,
  openedWith,
  rotationWith,
  sealUnder
} from "../../support/keys/rotating.ts"
import { newTenant } from "../../support/database/newTenant.ts"
import { cipherOn } from "../../support/memory/inMemory.ts"
import { seal } from "../../links/browser.ts"
import { openStore, type StoredPorts, storesOn } from "../../support/database/stores.ts"
import { holdOpen, untilWaiting } from "../../support/database/transactions.ts"
import { assert, describe, it } from "../../support/it.ts"
import { defaultSettings } from "../../support/service/defaultSettings.ts"

/** Links as an instance with that keyring has them. */
const linksOn = (keyring: string) =>
  Links.layer.pipe(
    Layer.provide(Layer.provide(LinkKeysLive.layer, cipherOn(keyring))),
    Layer.provide([SecureRandom.layerWebCrypto, defaultSettings])
  )

const rotated = ringOf("new", "old")
const rate = 1_000_000

/** Runs on a database of its own, with credentials sealed under the key that is to retire, in the order of their keys. */
const withCredentials = <A, E>(
  count: number,
  test: (
    sql: SqlClient.SqlClient,
    made: ReadonlyArray<Made>,
    /** The rotation of another process, with connections of its own. */
    another: Effect.Effect<Rotation["Service"]>
  ) => Effect.Effect<A, E, StoredPorts | Scope.Scope>
) =>
  Effect.gen(function* () {
    const { ports, sql, url } = yield* openStore
    const scope = yield* Effect.scope
    const another = Effect.flatMap(Scope.provide(storesOn(url), scope), (ports) =>
      Effect.provide(rotationWith(rotated), ports)
    )
    return yield* Effect.gen(function* () {
      const made = yield* sealUnder(ringOf("old"), count)
      return yield* test(sql, inOrder(made), Effect.orDie(another))
    }).pipe(Effect.provide(ports))
  })

/** A lock that makes replacing wrapped keys wait, with their rows locked. */
const gate = "SELECT pg_advisory_xact_lock(7)"
const addGate = (sql: SqlClient.SqlClient) =>
  Effect.gen(function* () {
    yield* sql.unsafe(`CREATE FUNCTION wait_at_gate() RETURNS trigger LANGUAGE plpgsql AS $$
      BEGIN PERFORM pg_advisory_xact_lock_shared(7); RETURN NULL; END $$`)
    yield* sql.unsafe(`CREATE TRIGGER gate AFTER UPDATE ON credentials EXECUTE FUNCTION wait_at_gate()`)
  })

describe("a rewrap on PostgreSQL (T10; docs/keys.md, Rotate the keyring)", () => {
  it.live("shares the work with a concurrent one: neither waits for the other, and no key is wrapped twice", () =>
    withCredentials(8, (sql, made, another) =>
      Effect.gen(function* () {
        yield* addGate(sql)
        const open = yield* holdOpen(sql, gate)
        const { rewrap } = yield* rotationWith(rotated)
        const first = yield* Effect.forkChild(rewrap({ batch: 5, rate }))
        yield* untilWaiting(sql, 1)
        const second = yield* Effect.forkChild((yield* another).rewrap({ batch: 5, rate }))
        yield* eventually(
          "both have their rows and wait at the gate, not for each other",
          Effect.map(
            sql`SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'advisory'`,
            (waiting) => waiting.length === 2
          )
        )
        yield* open
        const [one, other] = [yield* Fiber.join(first), yield* Fiber.join(second)]
        assert.deepStrictEqual([one.rewrapped, other.rewrapped], [5, 3])
        assert.deepStrictEqual([one.left, other.left, ...one.failed, ...other.failed], [0, 0])
        assert.deepStrictEqual(yield* openedWith(ringOf("new"), made), keysOf(made))
      })
    )
  )

  it.live("lets get and create continue while it has rows locked", () =>
    withCredentials(3, (sql, made) =>
      Effect.gen(function* () {
        yield* addGate(sql)
        const open = yield* holdOpen(sql, gate)
        const { rewrap } = yield* rotationWith(rotated)
        const running = yield* Effect.forkChild(rewrap({ rate }))
        yield* untilWaiting(sql, 1)
        const repository = yield* CredentialRepository
        assert.deepStrictEqual(yield* openedWith(rotated, made), keysOf(made))
        const more = yield* sealUnder(ringOf("new"), 2)
        const [one] = made
        if (one === undefined) return assert.fail("no credential")
        const { credential, sealed } = Option.getOrThrow(yield* repository.findSealed(one.account_id, one.id))
        const beside = { ...credential, id: CredentialId.make(randomUUID()) }
        assert.isAbove(
          Option.getOrThrow(yield* repository.insert(one.account_id, beside, sealed)).sort_order,
          credential.sort_order
        )
        yield* sql`DELETE FROM credentials WHERE id = ${beside.id}`
        yield* untilWaiting(sql, 1)
        yield* open
        assert.deepStrictEqual(yield* Fiber.join(running), { rewrapped: 3, left: 0, failed: [] })
        assert.deepStrictEqual(yield* openedWith(ringOf("new"), [...made, ...more]), keysOf([...made, ...more]))
      })
    )
  )

  it.live("skips a row that is being changed, and rewraps it later in its new state", () =>
    withCredentials(4, (sql, made) =>
      Effect.gen(function* () {
        const [first, ...others] = made
        if (first === undefined) return assert.fail("no credentials")
        const repository = yield* CredentialRepository
        const { credential } = Option.getOrThrow(yield* repository.findSealed(first.account_id, first.id))
        const cipher = yield* cipherWith(ringOf("old"))
        const changed = yield* cipher.seal(Redacted.make("fake-key-changed"), contextOf({ ...credential, ...first }))
        const bytea = (bytes: Uint8Array) => `'\\x${Buffer.from(bytes).toString("hex")}'`
        const commit = yield* holdOpen(
          sql,
          `UPDATE credentials SET wrapped_dek = ${bytea(changed.wrapped_dek)}, sealed = ${bytea(changed.sealed)}
           WHERE id = '${first.id}'`
        )
        const { rewrap } = yield* rotationWith(rotated)
        const progress: Array<number> = []
        const onProgress = ({ rewrapped }: RewrapProgress) =>
          Effect.suspend(() => (progress.push(rewrapped) === 1 ? commit : Effect.void))
        assert.deepStrictEqual(yield* rewrap({ rate, onProgress }), { rewrapped: 4, left: 0, failed: [] })
        assert.deepStrictEqual(progress, [3, 4])
        assert.deepStrictEqual(yield* openedWith(ringOf("new"), made), ["fake-key-changed", ...keysOf(others)])
      })
    )
  )

  it.live("reports as altered a row that no create could have stored, and rewraps the others", () =>
    withCredentials(3, (sql, [broken, ...whole]) =>
      Effect.gen(function* () {
        if (broken === undefined) return assert.fail("no credential")
        yield* sql`
          INSERT INTO pools (account_id, workspace_id, provider)
          SELECT account_id, workspace_id, 'no-such-provider' FROM credentials WHERE id = ${broken.id}`
        yield* sql`UPDATE credentials SET provider = 'no-such-provider' WHERE id = ${broken.id}`
        const { rewrap } = yield* rotationWith(rotated)
        const reason = "the credential or its sealed key was altered"
        assert.deepStrictEqual(yield* rewrap({ rate }), { rewrapped: 2, left: 1, failed: [{ id: broken.id, reason }] })
        assert.deepStrictEqual(yield* openedWith(ringOf("new"), whole), keysOf(whole))
      })
    )
  )

  it.live("finds the few rows left under the old key, wherever they are among 20,000 others", () =>
    withCredentials(2, (sql, made) =>
      Effect.gen(function* () {
        const ids = ["00000000-0000-7000-8000-000000000001", "ffffffff-ffff-7fff-bfff-fffffffffffe"]
        const copy = (change: object, count: number) => sql`
          INSERT INTO credentials
          SELECT copy.* FROM credentials c, generate_series(1, ${count}) AS n, jsonb_populate_record(
            NULL::credentials,
            to_jsonb(c) || jsonb_build_object('id', '80000000-0000-7000-8000-' || lpad(n::text, 12, '0'))
              || ${JSON.stringify(change)}::jsonb
          ) AS copy
          WHERE c.id = ${made[0]?.id}`
        yield* copy({ kek_id: "new" }, 20_100)
        for (const id of ids) yield* copy({ id }, 1)
        const { rewrap } = yield* rotationWith(rotated)
        const { failed, left, rewrapped } = yield* rewrap({ rate })
        assert.deepStrictEqual([rewrapped, left, failed.map(({ id }) => id)], [2, 2, ids])
      })
    )
  )

  it.live("rewraps the key pairs of links, which still work after the old key is retired", () =>
    withCredentials(1, () =>
      Effect.gen(function* () {
        const { account_id } = yield* newTenant
        const linksWith = (keyring: string) => Effect.provide(Links, linksOn(keyring))
        const { create, find } = yield* linksWith(ringOf("old"))
        const asked = { purpose: "connect", expires_in: 3600 } as const
        const created = yield* Effect.replicateEffect(create(account_id, asked), 3)
        const { retire } = yield* KekRegistry
        assert.strictEqual(yield* retire("old"), 4)
        const { rewrap, status } = yield* rotationWith(rotated)
        assert.deepInclude(yield* rewrap({ batch: 2, rate }), { rewrapped: 4, left: 0, failed: [] })
        assert.deepStrictEqual(
          (yield* status()).map(({ credentials, kek_id }) => [kek_id, credentials]),
          [
            ["new", 4],
            ["old", 0]
          ]
        )
        assert.strictEqual(yield* retire("old"), 0)
        const { openKey } = yield* linksWith(ringOf("new"))
        for (const { url } of created) {
          const token = Redacted.make(Redacted.value(url).split("#")[1] ?? "")
          const link = Option.getOrThrow(yield* find(hashApiKey(token, "latin1")))
          const public_key = Buffer.from(link.keys?.public_key ?? []).toString("base64url")
          const { ciphertext, enc } = yield* seal({ ...link, public_key, providers: [] }, "a key", "openai")
          const sealed = { ciphertext: Buffer.from(ciphertext, "base64url"), enc: Buffer.from(enc, "base64url") }
          const key = yield* openKey(link, sealed, { provider: "openai", credential_id: null })
          assert.strictEqual(Redacted.value(key), "a key")
        }
        const late = yield* Effect.exit(create(account_id, asked))
        assert.isTrue(Exit.isFailure(late), "no link is stored under the retired key")
      })
    )
  )
})
