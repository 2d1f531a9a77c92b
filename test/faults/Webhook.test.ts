import { spawn } from "node:child_process"
import { existsSync, readFileSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { Effect, Scope } from "effect"
import { load, newLedger, untilAcked } from "../support/database/AckChecker.ts"
import { type Received, verifies } from "../support/http/webhookReceiver.ts"
import { embeddedClient, startedBefore } from "../support/process/firstStart.ts"
import { eventually } from "../support/process/eventually.ts"
import { byokSource } from "../support/process/runByok.ts"
import { postmasterOf, startService } from "../support/process/ServiceProcess.ts"
import { assert, describe, it } from "../support/it.ts"

const secrets = [1, 2].map((byte) => `whsec_${Buffer.alloc(32, byte).toString("base64")}`)
const other = `whsec_${Buffer.alloc(32, 3).toString("base64")}`

/** Starts the receiver, on a port of its own unless one is given. */
const startReceiver = (file: string, port = 0) =>
  Effect.acquireRelease(
    Effect.promise(async () => {
      const program = join(import.meta.dirname, "LossyReceiver.ts")
      const child = spawn(process.execPath, [program, file, String(port)], { stdio: ["ignore", "pipe", "inherit"] })
      const ended = new Promise((resolve) => child.once("close", resolve))
      const text = await new Promise((resolve) => child.stdout.setEncoding("utf8").once("data", resolve))
      const kill = Effect.promise(() => (child.kill("SIGKILL"), ended))
      return { port: Number(text), kill }
    }),
    ({ kill }) => kill
  )

const receivedIn = (file: string) => {
  const lines = existsSync(file) ? readFileSync(file, "utf8").split("\n").slice(0, -1) : []
  return lines.map((line) => JSON.parse(line) as Received)
}

/** Breaches of the promise that each delivery has the same event as the previous one, or the next event. */
const faultsOf = (written: ReadonlyArray<string>, received: ReadonlyArray<string>) => {
  const at = new Map(written.map((id, index) => [id, index]))
  const got = new Set(received)
  const positions = received.map((id) => at.get(id) ?? Number.NaN)
  const inOrder = (index: number) => [0, 1].includes((positions[index] ?? 0) - (positions[index - 1] ?? -1))
  return [
    ...written.filter((id) => !got.has(id)).map((id) => `lost: ${id}`),
    ...received.filter((_, index) => !inOrder(index)).map((id) => `out of order: ${id}`)
  ]
}

/** Kills receiver, PostgreSQL and our service in turn under load; for another program the lost answers suffice. Waits for all events. */
const deliver = (program?: Array<string>) =>
  Effect.gen(function* () {
    const { key, settings } = yield* startedBefore
    const directory = join(settings.BYOK_DATA_DIR, "..")
    const [file, secretFile] = [join(directory, "received"), join(directory, "secrets")]
    writeFileSync(secretFile, secrets.join("\n"), { mode: 0o600 })
    const endpoint = yield* Scope.fork(yield* Effect.scope)
    const { port, kill } = yield* Scope.provide(startReceiver(file), endpoint)
    const variables = {
      ...settings,
      BYOK_WEBHOOK_URL: `http://127.0.0.1:${port}/`,
      BYOK_WEBHOOK_SECRET_FILE: secretFile
    }
    const ledger = newLedger()
    const start = Effect.gen(function* () {
      const service = yield* startService(variables, program)
      const sql = yield* embeddedClient(settings)
      yield* eventually("a cursor", sql`SELECT 1 FROM event_cursors`, ({ length }) => length > 0)
      // Half a minute after an instance was killed another one delivers.
      yield* sql`UPDATE event_cursors SET held_until = now()`
      const [cursor] = yield* sql<{ seq: number }>`SELECT seq::int FROM event_cursors`
      const underLoad = Effect.andThen(
        load(service.url, key, ledger, { clients: 2, pause: 50 }),
        untilAcked(ledger, 30)
      )
      return { ...service, sql, underLoad, from: cursor?.seq ?? 0 }
    })
    const killEach = Effect.scoped(
      Effect.gen(function* () {
        const { ended, from, signal, underLoad } = yield* start
        yield* underLoad
        yield* kill
        yield* untilAcked(ledger, 10)
        yield* startReceiver(file, port).pipe(Scope.provide(endpoint))
        const { length } = receivedIn(file)
        yield* eventually("more is received", () => receivedIn(file).length > length + 10)
        process.kill(postmasterOf(settings.BYOK_DATA_DIR), "SIGKILL")
        yield* untilAcked(ledger, 30)
        yield* signal("SIGKILL")
        assert.strictEqual(yield* ended, "SIGKILL")
        return from
      })
    )
    const before = program === undefined ? yield* killEach : undefined
    const written = yield* Effect.scoped(
      Effect.gen(function* () {
        const { from, sql, underLoad } = yield* start
        yield* Effect.scoped(underLoad)
        yield* eventually(
          "everything is delivered",
          sql`SELECT 1 FROM event_cursors WHERE seq = (SELECT max(seq) FROM audit_entries) AND holder IS NULL`,
          ({ length }) => length > 0
        )
        const rows = yield* sql<{ id: string }>`
          SELECT seq || '.' || n - 1 AS id FROM audit_entries, json_array_elements(events) WITH ORDINALITY AS event (_, n)
          WHERE seq > ${before ?? from} ORDER BY seq, n`
        return rows.map(({ id }) => id)
      })
    )
    return { written, received: receivedIn(file) }
  })

const idsOf = (received: ReadonlyArray<Received>) => received.map(({ headers }) => String(headers["webhook-id"]))

describe("webhook events while receiver, PostgreSQL and service are killed and answers are lost", () => {
  it.live(
    "arrive at least once, in order, with valid signatures; repetitions follow directly (Standard Webhooks)",
    function* () {
      const { received, written } = yield* deliver()
      const ids = idsOf(received)
      assert.deepStrictEqual(faultsOf(written, ids), [])
      assert.isAbove(written.length, 100)
      assert.isTrue(received.some(({ answer }) => answer === "lost"))
      assert.isAtMost(ids.length - written.length, received.filter(({ answer }) => answer === "lost").length + 3)
      for (const one of received) {
        assert.deepStrictEqual(
          [...secrets, other].map((secret) => verifies(secret, one)),
          [true, true, false]
        )
      }
      assert.isNotEmpty(faultsOf(written, ids.toReversed()), "control")
    }
  )

  it.live("are lost by a service whose cursor moves on before the answer (control)", function* () {
    const { received, written } = yield* deliver([
      "--import",
      join(import.meta.dirname, "hastyCursor.ts"),
      byokSource,
      "serve"
    ])
    assert.include(faultsOf(written, idsOf(received)).join(), "lost: ")
  })
})
