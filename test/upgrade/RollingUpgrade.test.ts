import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { freshDatabase } from "../support/database/freshDatabase.ts"
import { getOver } from "../support/http/callByok.ts"
import { ringOf } from "../support/keys/keyrings.ts"
import { eventually } from "../support/process/eventually.ts"
import { releaseBefore, unpackRelease } from "../support/process/releases.ts"
import { byokScript, runByok } from "../support/process/runByok.ts"
import { runNode } from "../support/process/runNode.ts"
import { type ServiceProcess, startService } from "../support/process/ServiceProcess.ts"
import { makeRotation } from "./makeRotation.ts"
import { startTraffic } from "./startTraffic.ts"

/** Prints what the released version opens for its own gateway. */
const opening = `
  import { Effect, Option, Redacted } from "effect"
  const [directory, account_id, id] = process.argv.slice(1)
  const load = (path) => import(directory + "/dist/" + path + ".js")
  const [Byok, { openForRouting }] = await Promise.all([load("Byok"), load("service/openForRouting")])
  const opened = await Effect.runPromise(Effect.provide(openForRouting(account_id, id), Byok.layer))
  console.log(Redacted.value(Option.getOrThrow(opened).key))`

describe(`the upgrade from ${releaseBefore}`, () => {
  it.live(
    "fails no request: the schema first, then instance by instance, back, and forward again",
    () =>
      Effect.gen(function* () {
        const release = yield* unpackRelease(releaseBefore)
        const variables = { DATABASE_URL: yield* freshDatabase, BYOK_KEYRING: ringOf("kek") }
        const run = (...args: ReadonlyArray<string>) =>
          Effect.map(runByok(args, variables), ({ code, stderr, stdout }) => {
            assert.strictEqual(code, 0, stderr)
            return stdout
          })

        const rotation = makeRotation()
        const start = (program: string) =>
          Effect.tap(startService({ ...variables, BYOK_MIGRATE: "check" }, [program, "serve"]), ({ url }) =>
            Effect.sync(() => rotation.add(url))
          )
        const [startOld, startNew] = [start(release.script), start(byokScript)]
        const stop = ({ ended, signal, url }: ServiceProcess) =>
          Effect.gen(function* () {
            yield* Effect.promise(() => rotation.remove(url))
            yield* signal("SIGTERM")
            assert.strictEqual(yield* ended, 0)
          })

        const old = [yield* startOld, yield* startOld] as const
        const account = yield* runNode([release.script, "account", "create", "--name", "n", "--json"], { variables })
        const { account_id, management_key } = JSON.parse(account.stdout) as Record<string, string>
        if (account_id === undefined || management_key === undefined) return assert.fail(account.stdout)

        const { stop: stopTraffic, traffic } = yield* Effect.acquireRelease(
          Effect.sync(() => startTraffic(rotation, management_key, 3)),
          (started) => Effect.promise(started.stop)
        )
        const whileServing = Effect.gen(function* () {
          const enough = traffic.requests + 60
          const served = Effect.sync(() => traffic.requests >= enough || traffic.failed.length > 0)
          yield* eventually("requests are served", served)
          assert.deepStrictEqual(traffic.failed, [])
        })
        yield* whileServing

        assert.include(yield* run("migrate"), "key_by_account")
        yield* whileServing
        const first = yield* startNew
        yield* whileServing
        yield* stop(old[0])
        const second = yield* startNew
        yield* stop(old[1])
        yield* whileServing

        const [rotated = "", deleted = ""] = traffic.stored.keys()
        const change = (id: string, method: string, body?: object) =>
          Effect.promise(() =>
            fetch(`${first.url}/api/v1/byok/${id}`, {
              method,
              headers: { authorization: `Bearer ${management_key}`, "content-type": "application/json" },
              ...(body === undefined ? {} : { body: JSON.stringify(body) })
            }).then(({ status }) => status)
          )
        const key = "fake-key-of-the-new-version-wxyz"
        assert.deepStrictEqual([yield* change(rotated, "PATCH", { key }), yield* change(deleted, "DELETE")], [200, 200])
        assert.isTrue(traffic.stored.delete(rotated) && traffic.stored.delete(deleted))

        const back = [yield* startOld, yield* startOld] as const
        yield* whileServing
        yield* stop(first)
        yield* stop(second)
        yield* whileServing
        const byOld = yield* getOver(back[0].url, management_key, rotated)
        assert.deepStrictEqual([byOld.status, byOld.body.includes('"fak...wxyz"')], [200, true], byOld.body)
        assert.strictEqual((yield* getOver(back[0].url, management_key, deleted)).status, 404)
        const opened = yield* runNode(["--input-type=module", "-e", opening, release.directory, account_id, rotated], {
          variables,
          cwd: join(import.meta.dirname, "../..")
        })
        assert.strictEqual(opened.stdout.trim(), key, opened.stderr)

        const last = yield* startNew
        const early = yield* runByok(["migrate", "--finish"], variables)
        assert.deepStrictEqual([early.code, early.stdout], [1, ""])
        assert.include(early.stderr, "byok 1.0.0 is connected")
        yield* stop(back[0])
        yield* stop(back[1])
        assert.include(yield* run("migrate", "--finish"), "drop_keys_by_id")
        yield* whileServing

        const { failed, stored } = yield* Effect.promise(stopTraffic)
        assert.deepStrictEqual(failed, [])
        assert.isAbove(stored.size, 100)
        for (const [id, body] of stored) {
          assert.deepStrictEqual(yield* getOver(last.url, management_key, id), { status: 200, body })
        }
        yield* run("audit", "verify")
      }),
    300_000
  )
})
