import { randomUUID } from "node:crypto"
import { parseArgs } from "node:util"
import { Duration, Effect, Layer, Redacted, Result, Schema } from "effect"
import { generateKeyring } from "../../../src/crypto/keyring/Keyring.ts"
import { CredentialId } from "../../../src/domain/Identifiers.ts"
import { Provider } from "../../../src/domain/Provider.ts"
import { RoutingRequest } from "../../../src/domain/routing/RoutingRequest.ts"
import { Cipher } from "../../../src/port/Cipher.ts"
import type { Freshness } from "../../../src/service/routing/RouterRequest.ts"
import type { Attempt } from "../../../src/service/routing/run.ts"
import { Router } from "../../../src/service/routing/Router.ts"
import * as CredentialPoolsLive from "../../../src/sql/routing/CredentialPoolsLive.ts"
import type { NewRow } from "../../../src/sql/rows/credentialRows.ts"
import * as Database from "../../../src/sql/connection/Database.ts"
import { parseDatabaseUrl } from "../../../src/sql/connection/DatabaseTarget.ts"
import * as CredentialUseLive from "../../../src/sql/routing/CredentialUseLive.ts"
import * as ParkingsLive from "../../../src/sql/routing/ParkingsLive.ts"
import { contextOf } from "../../../src/domain/SealedKey.ts"
import { plainCredential } from "../../support/database/plainCredential.ts"
import { cipherOn } from "../../support/memory/inMemory.ts"
import { account_id, type Bed, insertRows, onBed, patientSettings, workspace_id } from "../Bed.ts"
import { cpuOfTree } from "../Process.ts"
import { repeatedly, timed } from "../repeatedly.ts"
import { medianOf } from "../Report.ts"
import { defaultSettings } from "../../support/service/defaultSettings.ts"

const { values } = parseArgs({
  options: { seconds: { type: "string", default: "3" }, rounds: { type: "string", default: "3" } }
})
const milliseconds = Number(values.seconds) * 1000
const keyring = generateKeyring(new Date())
const providers = Provider.literals.slice(0, 64)

const sealed = Effect.fnUntraced(function* (provider: string) {
  const credential = { ...plainCredential(workspace_id, randomUUID()), id: CredentialId.make(randomUUID()), provider }
  const { seal } = yield* Cipher
  const key = Redacted.make(`sk-${randomUUID()}-${randomUUID()}`)
  return { account_id, ...credential, ...(yield* seal(key, contextOf({ ...credential, account_id }))) } satisfies NewRow
})

const requests = providers.map((provider) =>
  Schema.decodeUnknownSync(RoutingRequest)({ account_id, workspace_id, model: "a/model", targets: [{ provider }] })
)

/** A load: the number of plans at a time, with or without leases of their first keys. */
interface Load {
  readonly concurrency: number
  readonly freshness: Freshness
  readonly leases: boolean
}

/** Plans over and over. Answers how many per second of Node's CPU, and PostgreSQL's microseconds for each. */
const measure = Effect.fnUntraced(function* (postmaster: number, { concurrency, freshness, leases }: Load) {
  const { plan, run } = yield* Router
  const before = cpuOfTree(postmaster)
  let asked = 0
  let zeros = 0
  const one = Effect.suspend(() => {
    const request = requests[(asked += 1) % requests.length]
    if (request === undefined) return Effect.die("no request")
    if (!leases) return Effect.asVoid(plan(request, freshness))
    const attempt: Attempt<undefined, never, never> = (_step, lease) =>
      Effect.sync(() => {
        zeros += lease === undefined || lease.bytes[0] === 0 ? 1 : 0
        return { outcome: { _tag: "Abandoned" }, value: undefined }
      })
    return run(request, attempt, freshness)
  })
  const { cpu, result: done, seconds } = yield* timed(repeatedly(milliseconds, concurrency, one))
  if (zeros > 0) return yield* Effect.die("an empty lease")
  const postgres = (cpuOfTree(postmaster) - before) / done
  return { perCpu: done / cpu, perSecond: done / seconds, postgres }
})

/** Measures opening a key alone: the least that a lease costs. */
const measureOpening = Effect.gen(function* () {
  const { read } = yield* Cipher
  const row = yield* sealed("azure")
  const count = 50_000
  const { cpu } = yield* timed(
    Effect.sync(() => {
      for (let n = 0; n < count; n += 1) Result.getOrThrow(read(row, contextOf(row), (key) => key.length))
    })
  )
  return Math.round(count / cpu)
})

const reportOf = Effect.fnUntraced(function* (postmaster: number, title: string, load: Load) {
  const rounds = yield* Effect.forEach(Array.from({ length: Number(values.rounds) }), () => measure(postmaster, load))
  const of = (figure: keyof (typeof rounds)[number]) =>
    String(Math.round(medianOf(rounds.map((round) => round[figure]))))
  console.log(
    `${title.padEnd(58)} ${of("perCpu").padStart(7)} per CPU second  ${of("perSecond").padStart(7)} per second  ${of("postgres").padStart(4)} µs of PostgreSQL's CPU`
  )
})

const program = Effect.fnUntraced(function* ({ client, postmaster, url }: Bed) {
  const fill = Effect.fnUntraced(function* (from: number, to: number) {
    for (const provider of providers) {
      const rows = yield* Effect.forEach(Array.from({ length: to - from }), () => sealed(provider))
      yield* Effect.promise(() => insertRows(client, rows, from))
    }
    yield* Effect.promise(() => client.query("VACUUM ANALYZE credentials"))
  })
  const measured = Effect.gen(function* () {
    const report = (title: string, concurrency: number, freshness: Freshness, leases: boolean) =>
      reportOf(postmaster, title, { concurrency, freshness, leases })
    yield* fill(0, 3)
    yield* report("warm-up", 64, "now", true)
    console.log(`${"opening a key alone".padEnd(58)} ${String(yield* measureOpening).padStart(7)} per CPU second`)
    yield* report("validated plan and lease, 64 at a time, 3 keys a pool", 64, "now", true)
    yield* report("validated plan and lease, 256 at a time", 256, "now", true)
    yield* report("validated plan and lease, one at a time", 1, "now", true)
    yield* report("validated plan alone, 64 at a time", 64, "now", false)
    yield* report("plan and lease, fresh within a second, 64 at a time", 64, Duration.seconds(1), true)
    yield* fill(3, 10)
    yield* report("validated plan and lease, 64 at a time, 10 keys a pool", 64, "now", true)
    yield* fill(10, 100)
    yield* report("validated plan and lease, 64 at a time, 100 keys a pool", 64, "now", true)
    // As many pools as the budget for memory holds.
    requests.splice(16)
    providers.splice(16)
    yield* fill(100, 1_000)
    yield* report("validated plan and lease, 64 at a time, 1,000 keys a pool", 64, "now", true)
  })
  yield* Effect.provide(
    measured,
    Router.layer.pipe(
      Layer.provide([CredentialPoolsLive.layer, CredentialUseLive.layer, ParkingsLive.layer]),
      Layer.provide(Database.layer(parseDatabaseUrl(Redacted.make(url)), patientSettings)),
      Layer.provide([cipherOn(keyring), defaultSettings])
    )
  )
})

onBed("router", 0, (bed) => Effect.provide(program(bed), cipherOn(keyring)))
