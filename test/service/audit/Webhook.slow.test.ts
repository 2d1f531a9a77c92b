import { spawnSync } from "node:child_process"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Redacted } from "effect"
import { post } from "../../../src/service/audit/Webhook.ts"
import { receiver } from "../../support/http/webhookReceiver.ts"

const isInstalled = spawnSync("python3", ["--version"]).status === 0
const secretOf = (byte: number) => `whsec_${Buffer.alloc(24, byte).toString("base64")}`
const messages = ["1.0", "1.1", "2.0"].map((id) => ({
  id,
  type: "a.b",
  timestamp: "2026-01-01T00:00:00Z",
  data: { é: 1 }
}))

/** The ids of those messages that the receiver in Python takes. */
const taken = (secret: string, received: ReadonlyArray<object>) => {
  const program = join(import.meta.dirname, "../../support/http/verify_webhooks.py")
  const input = received.map((one) => `${JSON.stringify(one)}\n`).join("")
  const { status, stderr, stdout } = spawnSync("python3", [program, secret], { encoding: "utf8", input })
  assert.deepStrictEqual({ status, stderr }, { status: 0, stderr: "" })
  return stdout.split("\n").slice(0, -1)
}

describe.skipIf(!isInstalled)(
  `a receiver in Python that knows the specification alone${isInstalled ? "" : " (skipped: python3 is not installed)"}`,
  () => {
    it.live("takes messages by each of two secrets, and none by a third or with another body (Standard Webhooks)", () =>
      Effect.gen(function* () {
        const { received, url } = yield* receiver([])
        const secrets = [1, 2].map((byte) => Redacted.make<Uint8Array>(Buffer.alloc(24, byte)))
        for (const message of messages) assert.strictEqual(yield* post({ url, secrets }, message), 200)
        const ids = messages.map(({ id }) => id)
        assert.deepStrictEqual(taken(secretOf(1), received), ids)
        assert.deepStrictEqual(taken(secretOf(2), received), ids)
        assert.deepStrictEqual(taken(secretOf(3), received), [], "control")
        const changed = received.map((one) => ({ ...one, body: one.body.replace("a.b", "a.c") }))
        assert.deepStrictEqual(taken(secretOf(1), changed), [], "control")
      })
    )
  }
)
