import { randomBytes, randomUUID } from "node:crypto"
import { parseArgs } from "node:util"
import { Effect, Layer, Redacted } from "effect"
import { generateKeyring } from "../../../src/crypto/keyring/Keyring.ts"
import { CredentialId } from "../../../src/domain/Identifiers.ts"
import { labelOf } from "../../../src/domain/labelOf.js"
import { Cipher } from "../../../src/port/Cipher.ts"
import { LeakResponse } from "../../../src/service/credentials/LeakResponse.ts"
import type { NewRow } from "../../../src/sql/rows/credentialRows.ts"
import * as Database from "../../../src/sql/connection/Database.ts"
import { parseDatabaseUrl } from "../../../src/sql/connection/DatabaseTarget.ts"
import * as LeakedKeysLive from "../../../src/sql/credentials/LeakedKeysLive.ts"
import { contextOf } from "../../../src/domain/SealedKey.ts"
import { plainCredential } from "../../support/database/plainCredential.ts"
import { cipherOn } from "../../support/memory/inMemory.ts"
import { account_id, type Bed, insertRows, onBed, patientSettings, workspace_id } from "../Bed.ts"
import { timed } from "../repeatedly.ts"

const { values } = parseArgs({ options: { rows: { type: "string", default: "100000" } } })
const total = Number(values.rows)
const keyring = generateKeyring(new Date())
const batch = 1000

/** One key in a hundred is JSON, as those of Google, AWS and Azure are; the others differ like issued ones. */
const keyOf = (n: number) => {
  const secret = randomBytes(36).toString("base64url")
  return n % 100 === 0 ? JSON.stringify({ type: "service_account", private_key: secret.repeat(35) }) : `sk-${secret}`
}

const sealed = Effect.fnUntraced(function* (n: number) {
  const key = keyOf(n)
  // In order of creation, like real ids and rows.
  const id = CredentialId.make(`${n.toString(16).padStart(8, "0")}${randomUUID().slice(8)}`)
  const credential = { ...plainCredential(workspace_id, id), provider: "xai", label: labelOf(key) }
  const { seal } = yield* Cipher
  const row: NewRow = {
    account_id,
    ...credential,
    ...(yield* seal(Redacted.make(key), contextOf({ ...credential, account_id })))
  }
  return { key, row }
})

const program = Effect.fnUntraced(function* ({ client, url }: Bed) {
  const insert = (rows: ReadonlyArray<NewRow>) => Effect.promise(() => insertRows(client, rows))
  const rowsFrom = (first: number, count: number) =>
    Effect.forEach(Array.from({ length: count }), (_, n) => sealed(first + n))
  let leak = ""
  for (let first = 1; first <= total; first += batch) {
    const made = yield* rowsFrom(first, Math.min(batch, total - first + 1))
    leak = made.find(({ key }) => key.startsWith("sk-"))?.key ?? leak
    yield* insert(made.map(({ row }) => row))
  }
  yield* Effect.promise(() => client.query("VACUUM ANALYZE credentials"))
  yield* Effect.promise(() => client.query("CHECKPOINT"))

  const search = (all: boolean) =>
    timed(Effect.flatMap(LeakResponse, ({ find }) => find({ text: Redacted.make(leak), all })))
  const searches = Effect.gen(function* () {
    for (const all of [false, true]) {
      const { cpu, result, seconds } = yield* search(all)
      const { found, opened, searched, unopened_total } = result
      console.log(
        `${all ? "all   " : "labels"}  ${searched} credentials in ${seconds.toFixed(1)} s (${cpu.toFixed(1)} s of CPU in Node.js): ${opened} opened, ` +
          `${found.length} found, ${unopened_total} unopened`
      )
    }
  })
  yield* Effect.provide(
    searches,
    LeakResponse.layer.pipe(
      Layer.provide(LeakedKeysLive.layer),
      Layer.provide(Database.layer(parseDatabaseUrl(Redacted.make(url)), patientSettings)),
      Layer.provide(cipherOn(keyring))
    )
  )

  /** CPU of PostgreSQL for 20,000 inserts, in turns without and with an index on the label. */
  const more = (yield* rowsFrom(total + 1, 20_000)).map(({ row }) => row)
  const insertMore = Effect.gen(function* () {
    const { seconds } = yield* timed(
      Effect.forEach(
        Array.from({ length: more.length / batch }),
        (_, n) => insert(more.slice(n * batch, (n + 1) * batch)),
        { discard: true }
      )
    )
    yield* Effect.promise(() => client.query("DELETE FROM credentials WHERE id = ANY($1)", [more.map(({ id }) => id)]))
    yield* Effect.promise(() => client.query("VACUUM credentials"))
    yield* Effect.promise(() => client.query("CHECKPOINT"))
    return seconds
  })
  for (const round of [1, 2, 3]) {
    const without = yield* insertMore
    yield* Effect.promise(() => client.query("CREATE INDEX measured ON credentials (label)"))
    const withIndex = yield* insertMore
    yield* Effect.promise(() => client.query("DROP INDEX measured"))
    console.log(
      `index on the label, round ${round}: 20,000 inserts take ${(withIndex / without).toFixed(2)} times as long`
    )
  }
})

onBed("leaks", 0, (bed) => Effect.provide(program(bed), cipherOn(keyring)))
