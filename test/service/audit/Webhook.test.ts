import { Effect, Layer, Option, Redacted } from "effect"
import { EventCursor } from "../../../src/port/Events.ts"
import * as Checkpointing from "../../../src/service/audit/Checkpointing.ts"
import * as EventsLive from "../../../src/service/audit/Events.ts"
import * as Webhook from "../../../src/service/audit/Webhook.ts"
import { openStore, storesOn } from "../../support/database/stores.ts"
import { type Answer, type Received, receiver, verifies } from "../../support/http/webhookReceiver.ts"
import { eventually } from "../../support/process/eventually.ts"
import { assert, describe, it } from "../../support/it.ts"
import { defaultSettings } from "../../support/service/defaultSettings.ts"

const secrets = [1, 2].map((byte) => Buffer.alloc(32, byte))

const redacted = secrets.map((secret) => Redacted.make<Uint8Array>(secret))
const secretOf = (bytes: Uint8Array) => `whsec_${Buffer.from(bytes).toString("base64")}`

const entries = 8

/** Delivers events by two instances, without the pauses after failures, until all have been taken. */
const deliver = (answers: ReadonlyArray<Answer>, moveOnFailure = false) =>
  Effect.scoped(
    Effect.gen(function* () {
      const { ports, sql, url: database } = yield* openStore
      const { open, received, url } = yield* receiver(answers)
      const endpoint = Layer.succeed(Webhook.WebhookEndpoint, Option.some({ url, secrets: redacted }))
      yield* sql`INSERT INTO event_cursors (id, seq) VALUES (1, (SELECT coalesce(max(seq), 0) FROM audit_entries))`
      const skipping = Layer.effect(
        EventCursor,
        Effect.map(EventCursor, (cursor) => ({
          ...cursor,
          take: (holder: string) => Effect.tap(cursor.take(holder), () => (moveOnFailure ? skip : Effect.void))
        }))
      )
      const skip = Effect.orDie(
        sql`UPDATE event_cursors SET seq = seq + 1, done = 0 WHERE seq < (SELECT max(seq) FROM audit_entries)`
      )
      const written: Array<string> = []
      for (const instance of [ports, yield* storesOn(database)]) {
        const layers = Layer.merge(Webhook.layer, Checkpointing.layer).pipe(
          Layer.provide(Layer.provide(EventsLive.layer, defaultSettings)),
          Layer.provide([endpoint, skipping])
        )
        yield* Effect.provide(Layer.build(Layer.fresh(layers)), instance)
      }
      for (let n = 0; n < entries; n++) {
        const [row] = yield* sql<{ seq: number }>`
          INSERT INTO audit_entries (events)
          VALUES ('[{"action":"keyring.register","kek_id":"a"},{"action":"keyring.promote","kek_id":"a"}]'::json)
          RETURNING seq::int AS seq`
        written.push(`${row?.seq}.0`, `${row?.seq}.1`)
      }
      yield* eventually(
        "everything is delivered",
        Effect.gen(function* () {
          yield* sql`UPDATE event_cursors SET retry_at = NULL`
          return yield* sql`
            SELECT 1 FROM event_cursors WHERE seq = (SELECT max(seq) FROM audit_entries) AND holder IS NULL`
        }),
        ({ length }) => length > 0
      )
      return { received, written, open }
    })
  )

const idsOf = (received: ReadonlyArray<Received>) => received.map(({ headers }) => String(headers["webhook-id"]))
const firsts = (ids: ReadonlyArray<string>) => Array.from(new Set(ids))

describe("events posted to a webhook (Standard Webhooks)", () => {
  it.live(
    "arrive at least once, in order, one at a time, signed with every secret, and again after a failure",
    function* () {
      const { open, received, written } = yield* deliver([200, "lost", 204, 500, 302, 200, "lost"])
      const ids = idsOf(received)
      assert.deepStrictEqual(firsts(ids), written)
      assert.lengthOf(ids, written.length + 4, "one repetition for each failure")
      received.forEach(({ answer }, index) => {
        if (answer !== 200 && answer !== 204) assert.strictEqual(ids[index + 1], ids[index])
      })
      assert.strictEqual(open.most, 1)
      for (const one of received) {
        for (const secret of secrets) assert.isTrue(verifies(secretOf(secret), one))
        const other = secretOf(Buffer.alloc(32, 3))
        assert.isFalse(verifies(other, one), "control")
        const [first = other] = secrets.map(secretOf)
        assert.isFalse(verifies(first, { ...one, body: `${one.body} ` }), "control")
        const id = String(one.headers["webhook-id"])
        const now = Math.floor(Date.now() / 1000)
        const old = Webhook.signedHeaders({ secrets: redacted }, id, now - 400, one.body)
        assert.isFalse(verifies(first, { ...one, headers: old }), "control: a replay")
        const { data, timestamp, type } = JSON.parse(one.body) as {
          readonly data: object
          readonly timestamp: string
          readonly type: string
        }
        assert.match(type, /^keyring\.(register|promote)$/)
        assert.match(timestamp, /^\d{4}-\d\d-\d\dT.*Z$/)
        assert.deepInclude(data, { id: one.headers["webhook-id"], kek_id: "a" })
      }
    },
    60_000
  )

  it.live(
    "are lost if the cursor moves on before the answer (control)",
    function* () {
      const { received, written } = yield* deliver([500, 500], true)
      assert.isAtMost(firsts(idsOf(received)).length, written.length - 1)
    },
    60_000
  )
})

describe("the cursor of the webhook", () => {
  it.live(
    "has one holder at a time, until freed or until the hold ends; each failure doubles the pause, up to 5 minutes",
    function* () {
      const { ports, sql } = yield* openStore
      const cursor = yield* Effect.provide(EventCursor, ports)
      const [one, other] = ["00000000-0000-4000-8000-000000000001", "00000000-0000-4000-8000-000000000002"]
      assert.isTrue(Option.isNone(yield* cursor.state))
      assert.deepStrictEqual(yield* cursor.take(one), Option.some({ after: 0, done: 0 }))
      assert.isTrue(Option.isNone(yield* cursor.take(other)))
      assert.isFalse(yield* cursor.advance(other, { after: 5, done: 0 }))
      assert.isTrue(yield* cursor.advance(one, { after: 3, done: 1 }))
      yield* sql`UPDATE event_cursors SET held_until = now() - interval '1 second'`
      yield* sql`UPDATE event_cursors SET held_until = now() + interval '20 seconds'`
      assert.isTrue(Option.isNone(yield* cursor.take(other)), "held (control)")
      yield* sql`UPDATE event_cursors SET held_until = now() + interval '1 year', retry_at = now() + interval '1 year'`
      assert.deepInclude(Option.getOrThrow(yield* cursor.state), { pause: 0 }, "by a clock that was put back")
      assert.deepStrictEqual(yield* cursor.take(other), Option.some({ after: 3, done: 1 }), "whoever held it is gone")
      assert.isFalse(yield* cursor.advance(one, { after: 4, done: 0 }), "it was only slow")
      const pauses: Array<number> = []
      for (let n = 0; n < 11; n++) {
        yield* cursor.free(other, true)
        const { failures, pause } = Option.getOrThrow(yield* cursor.state)
        assert.strictEqual(failures, n + 1)
        pauses.push(Math.round(pause))
        assert.isTrue(Option.isNone(yield* cursor.take(other)))
        yield* sql`UPDATE event_cursors SET retry_at = NULL`
        yield* cursor.take(other)
      }
      assert.deepStrictEqual(pauses, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300])
      yield* sql`UPDATE event_cursors SET retry_at = now() + interval '300.5 seconds'`
      assert.isAbove(
        Option.getOrThrow(yield* cursor.state).pause,
        299,
        "a clock that steps back a little ends no pause"
      )
      assert.isTrue(yield* cursor.advance(other, { after: 9, done: 0 }))
      assert.strictEqual(Option.getOrThrow(yield* cursor.state).failures, 0)
    }
  )
})
