import { chmodSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { Effect } from "effect"
import { freePort } from "../support/database/listen.ts"
import { receiver, verifies } from "../support/http/webhookReceiver.ts"
import { CommandLine, onlyObject } from "../support/process/CommandLine.ts"
import { assert, layerLive } from "../support/it.ts"
import { runCommand } from "../support/process/runCommand.ts"
import { temporaryDirectory } from "../support/process/temporaryDirectory.ts"

const secretOf = (bytes: number) => `whsec_${Buffer.alloc(bytes, 7).toString("base64")}`

/** Runs `byok webhook test` with a file of secrets. */
const testWith = Effect.fnUntraced(function* (url: URL, content: string, mode: number = 0o600) {
  const file = join(yield* temporaryDirectory, "secrets")
  writeFileSync(file, content)
  chmodSync(file, mode)
  return yield* runCommand(["webhook", "test", "--json"], {
    BYOK_WEBHOOK_URL: url.href,
    BYOK_WEBHOOK_SECRET_FILE: file
  })
})

layerLive(CommandLine.layer)("byok webhook", (it) => {
  it.effect("byok webhook test posts a signed message, and reports a refusal (Standard Webhooks)", function* () {
    const { received, url } = yield* receiver([204, 500, 302, "lost"])
    const { id, status } = onlyObject(yield* testWith(url, `${secretOf(24)}\r\n${secretOf(64)}\n`))
    assert.strictEqual(status, 204)
    const [one] = received
    assert(one !== undefined)
    assert.strictEqual(one.headers["webhook-id"], id)
    assert.deepInclude(JSON.parse(one.body), { type: "webhook.test", data: {} })
    assert.deepStrictEqual(
      [24, 64, 25].map((bytes) => verifies(secretOf(bytes), one)),
      [true, true, false]
    )
    for (const answer of ["answered 500", "answered 302", "could not be reached (UND_ERR_SOCKET)"]) {
      const { code, stderr } = yield* testWith(url, secretOf(32))
      assert.deepStrictEqual([code, stderr.includes(`The endpoint ${answer}.`)], [1, true], stderr)
    }
    assert.lengthOf(received, 4, "no repetition, and no redirect is followed")
    const closed = new URL(`http://127.0.0.1:${yield* freePort}`)
    const { stderr } = yield* testWith(closed, secretOf(32))
    assert.include(stderr, "The endpoint could not be reached (ECONNREFUSED).")
  })

  it.effect("byok webhook test refuses invalid secrets and a file others can read, and shows no secret", function* () {
    const { received, url } = yield* receiver([])
    const good = secretOf(32)
    const refused = [
      ...["", good.replace("whsec_", "whsk_"), good.slice("whsec_".length), secretOf(23), secretOf(65)],
      ...[`${good}\n${good.slice(0, -1)}`, `${good} `, good.replace("Bw", "B-")]
    ]
    for (const content of refused) {
      const { code, stderr } = yield* testWith(url, content)
      assert.strictEqual(code, 1)
      assert.include(stderr, "BYOK_WEBHOOK_SECRET_FILE must have lines of whsec_ and 24 to 64 bytes in Base64.")
      assert.notInclude(stderr, "BwcHBwc")
    }
    const { code, stderr } = yield* testWith(url, good, 0o644)
    assert.strictEqual(code, 1)
    assert.include(stderr, "BYOK_WEBHOOK_SECRET_FILE: expected a file of mode 0400 or 0600; found 0644.")
    assert.deepStrictEqual(received, [])
  })

  it.effect("byok webhook status shows the cursor, the failures and the backlog of deliveries", function* () {
    const { run, runJson, sql } = yield* CommandLine
    assert.include((yield* run("webhook", "status")).stderr, "No instance has delivered events yet.")
    yield* sql`
        INSERT INTO event_cursors (id, seq, done, failures, retry_at) VALUES (
          1, (SELECT coalesce(max(seq), 0) FROM audit_entries), 1, 3, now() + interval '8 seconds')`
    yield* sql`INSERT INTO audit_entries (at, events) VALUES (now() - interval '1 minute', '[{"action":"a"}]')`
    const { lag_seconds, pause_seconds, ...shown } = yield* runJson("webhook", "status")
    const { after, ...counts } = shown
    assert.isNumber(after)
    assert.deepStrictEqual(counts, { failures: 3, waiting: 1 })
    assert.isAtLeast(Number(lag_seconds), 60)
    assert.isTrue(Number(pause_seconds) > 0 && Number(pause_seconds) <= 8)
  })
})
