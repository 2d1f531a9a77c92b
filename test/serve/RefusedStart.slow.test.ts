import { chmodSync, mkdirSync } from "node:fs"
import { join } from "node:path"
import { Effect } from "effect"
import { listen } from "../support/database/listen.ts"
import { OnDatabase } from "../support/process/firstStart.ts"
import { assert, layerLive } from "../support/it.ts"
import { runByok } from "../support/process/runByok.ts"
import { temporaryDirectory } from "../support/process/temporaryDirectory.ts"

/** Each part that listens or sends, with settings for which it starts, and for which it is refused with a sentence. */
const parts = Effect.gen(function* () {
  const [directory, taken] = [yield* temporaryDirectory, String(yield* listen(() => undefined))]
  const open = join(directory, "open")
  mkdirSync(open)
  chmodSync(open, 0o777)
  return {
    "the port": {
      works: () => ({ PORT: "0" }),
      refused: [{ PORT: taken }, `Port ${taken} on 127.0.0.1 is in use: set PORT, e.g. PORT=${Number(taken) + 1}.`]
    },
    "the management port": {
      works: () => ({ BYOK_MANAGEMENT_PORT: "0" }),
      refused: [
        { BYOK_MANAGEMENT_PORT: taken },
        "BYOK_MANAGEMENT_HOST and BYOK_MANAGEMENT_PORT must be an address that is free to listen on."
      ]
    },
    "the socket for gateways": {
      works: () => ({ BYOK_GATEWAY_SOCKET: join(directory, "socket") }),
      refused: [
        { BYOK_GATEWAY_SOCKET: join(open, "socket") },
        `BYOK_GATEWAY_SOCKET must be in a folder that, like each above it, only this user or root can write to: every user can write to ${open}.`
      ]
    },
    "the socket for proxies": {
      works: () => ({ BYOK_FORWARD_SOCKET: join(directory, "forward") }),
      refused: [
        { BYOK_FORWARD_SOCKET: join(open, "forward") },
        `BYOK_FORWARD_SOCKET must be in a folder that, like each above it, only this user or root can write to: every user can write to ${open}.`
      ]
    },
    "a collector that does not answer": { works: () => ({ OTEL_EXPORTER_OTLP_ENDPOINT: `http://127.0.0.1:${taken}` }) }
  } satisfies Record<string, { works: () => object; refused?: readonly [object, string] }>
})

layerLive(OnDatabase.layer)("a start that is refused", (it) => {
  it.effect("byok serve, if it cannot start, exits with 1 despite open listeners", function* () {
    const { settings } = yield* OnDatabase
    const all = Object.entries(yield* parts)
    const pairs = all.flatMap(([one, { works }]) =>
      all.flatMap(([other, part]) =>
        "refused" in part && one !== other ? [{ name: `${one} beside ${other}`, works, refused: part.refused }] : []
      )
    )
    assert.lengthOf(pairs, 16)
    for (const {
      name,
      refused: [wrong, sentence],
      works
    } of pairs) {
      const ran = runByok(["serve"], { ...settings, LOG_LEVEL: "error", PORT: "0", ...works(), ...wrong })
      const { code, stderr, stdout } = yield* Effect.timeoutOrElse(ran, {
        duration: "20 seconds",
        orElse: () => Effect.die(new Error(`${name}: still running`))
      })
      assert.deepStrictEqual({ name, code, stdout, stderr }, { name, code: 1, stdout: "", stderr: `${sentence}\n` })
    }
  })

  it.effect("byok serve says which Node.js it needs if it cannot stop the parser of this one", function* () {
    const { settings } = yield* OnDatabase
    const another = `import { Duplex } from "node:stream"
      Object.defineProperty(Duplex.prototype, "parser", { get: () => undefined, set: () => {} })`
    const variables = { NODE_OPTIONS: `--import=data:text/javascript,${encodeURIComponent(another)}` }
    const { code, stderr, stdout } = yield* runByok(["serve"], { ...settings, LOG_LEVEL: "error", ...variables })
    const sentence = `Node.js ${process.version} parses HTTP unlike the versions that byok supports: use 22 or 24.\n`
    assert.deepStrictEqual({ code, stdout, stderr }, { code: 1, stdout: "", stderr: sentence })
  })
})
