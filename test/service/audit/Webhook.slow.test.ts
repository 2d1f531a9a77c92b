import { spawnSync } from "node:child_process"
import { writeFileSync } from "node:fs"
import { join } from "node:path"
import { Effect, Redacted } from "effect"
import { post } from "../../../src/service/audit/Webhook.ts"
import { createOne, newLedger } from "../../support/database/AckChecker.ts"
import { receiver } from "../../support/http/webhookReceiver.ts"
import { eventually } from "../../support/process/eventually.ts"
import { OnDatabase } from "../../support/process/firstStart.ts"
import { assert, describe, it, layerLive } from "../../support/it.ts"
import { startService } from "../../support/process/ServiceProcess.ts"
import { temporaryDirectory } from "../../support/process/temporaryDirectory.ts"

const isInstalled = spawnSync("python3", ["--version"]).status === 0
const secretOf = (byte: number) => `whsec_${Buffer.alloc(24, byte).toString("base64")}`
const messages = ["1.0", "1.1", "2.0"].map((id) => ({
  id,
  type: "a.b",
  timestamp: "2026-01-01T00:00:00Z",
  data: { é: 1 }
}))

/** The ids of the messages that the receiver in Python accepts. */
const taken = (secret: string, received: ReadonlyArray<object>) => {
  const program = join(import.meta.dirname, "../../support/http/verify_webhooks.py")
  const input = received.map((one) => `${JSON.stringify(one)}\n`).join("")
  const { status, stderr, stdout } = spawnSync("python3", [program, secret], { encoding: "utf8", input })
  assert.deepStrictEqual({ status, stderr }, { status: 0, stderr: "" })
  return stdout.split("\n").slice(0, -1)
}

describe.skipIf(!isInstalled)(
  `an independent receiver in Python${isInstalled ? "" : " (skipped: python3 is not installed)"}`,
  () => {
    it.live(
      "verifies messages with each of two secrets, but not with a third or another body (Standard Webhooks)",
      function* () {
        const { received, url } = yield* receiver([])
        const secrets = [1, 2].map((byte) => Redacted.make<Uint8Array>(Buffer.alloc(24, byte)))
        for (const message of messages) assert.strictEqual(yield* post({ url, secrets }, message), 200)
        const ids = messages.map(({ id }) => id)
        assert.deepStrictEqual(taken(secretOf(1), received), ids)
        assert.deepStrictEqual(taken(secretOf(2), received), ids)
        assert.deepStrictEqual(taken(secretOf(3), received), [], "control")
        const changed = received.map((one) => ({ ...one, body: one.body.replace("a.b", "a.c") }))
        assert.deepStrictEqual(taken(secretOf(1), changed), [], "control")
      }
    )
  }
)

layerLive(OnDatabase.layer)("a webhook endpoint that does not answer", (it) => {
  it.effect("does not delay requests to the service", function* () {
    const { key, settings, sql } = yield* OnDatabase
    const { open, received, url } = yield* receiver(Array.from({ length: 100 }, () => "never" as const))
    const file = join(yield* temporaryDirectory, "secrets")
    writeFileSync(file, secretOf(1), { mode: 0o600 })
    const webhook = { BYOK_WEBHOOK_URL: url.href, BYOK_WEBHOOK_SECRET_FILE: file }
    const service = yield* startService({ ...settings, ...webhook })
    yield* eventually("a cursor", sql`SELECT 1 FROM event_cursors`, ({ length }) => length > 0)
    const ledger = newLedger()
    yield* Effect.promise(() => createOne(service.url, key, ledger))
    yield* eventually("a delivery hangs", () => open.now === 1)
    for (let n = 0; n < 10; n++) yield* Effect.promise(() => createOne(service.url, key, ledger))
    assert.deepStrictEqual([open.now, received.length], [1, 1], "it still hangs")
    assert.lengthOf(ledger.acked, 11)
    assert.isBelow(ledger.slowest, 3_000)
  })
})
