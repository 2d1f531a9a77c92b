import { spawn, spawnSync } from "node:child_process"
import { join } from "node:path"
import { Effect } from "effect"
import { fakeUpstream } from "../examples/FakeUpstream.ts"
import { openSocket } from "../gateway/socket.ts"
import { isInstalled } from "../support/http/Browser.ts"
import { TestService } from "../support/http/TestService.ts"
import { eventually } from "../support/process/eventually.ts"
import { assert, describe, layerLive } from "../support/it.ts"
import { visit } from "./visit.ts"

const dead = "sk-dead-0123456789-0123456789-0001"
const good = "sk-good-0123456789-0123456789-0002"

const missing = [
  ...(isInstalled ? [] : ["/usr/bin/chromium"]),
  ...(spawnSync("python3", ["--version"]).status === 0 ? [] : ["python3"])
]

describe.skipIf(missing.length > 0)(
  `a gateway and an owner${missing.map((name) => ` (skipped: no ${name})`).join()}`,
  () => {
    layerLive(TestService.layer)((it) => {
      it.effect(
        "connect a key, learn that the upstream rejects it, replace it, and serve the next request",
        function* () {
          const { url } = yield* TestService
          const { account_id } = yield* TestService.newTenant
          const path = yield* openSocket
          const upstream = yield* fakeUpstream((key, response) =>
            response.writeHead(key === good ? 200 : 401).end("{}")
          )
          let said = ""
          const child = yield* Effect.acquireRelease(
            Effect.sync(() =>
              spawn("python3", [join(import.meta.dirname, "gateway.py"), path, account_id, upstream.url])
            ),
            (running) => Effect.sync(() => running.kill())
          )
          for (const stream of [child.stdout, child.stderr])
            stream.on("data", (part: Buffer) => (said += part.toString()))
          const lines = Effect.sync(() => said.trimEnd().split("\n"))
          /** The owner opens the link that came last. */
          const open = (count: number) =>
            Effect.flatMap(
              Effect.andThen(
                eventually(
                  `link ${count}`,
                  lines,
                  (all) => all.filter((line) => line.startsWith("link ")).length === count
                ),
                lines
              ),
              (all) => visit(url + "/keys#" + (all.at(-1)?.split("#")[1] ?? ""))
            )

          const connecting = yield* open(1)
          yield* connecting.fill("API key", dead)
          yield* connecting.click("Add key")
          yield* connecting.reads("The key was added")

          const replacing = yield* open(2)
          yield* replacing.fill("API key", good)
          yield* replacing.click("Replace key")
          yield* replacing.reads("The key was replaced")

          yield* eventually("the second route", lines, (all) => all.at(-1)?.endsWith("succeeded") === true)
          assert.deepStrictEqual(
            (yield* lines).map((line) => line.replace(/^link .*/, "link")),
            [
              "link",
              "event credential.create sk-...0001 link",
              "route sk-...0001 rejected",
              "event credential.rejected sk-...0001 service",
              "link",
              "event credential.rotate sk-...0002 link",
              "route sk-...0002 succeeded"
            ]
          )
          assert.deepStrictEqual(upstream.seen(), [dead, good])
        }
      )
    })
  }
)
