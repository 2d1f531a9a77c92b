import { setTimeout } from "node:timers/promises"
import { ConfigProvider, Context, Effect, Layer, Logger } from "effect"
import { HttpServer } from "effect/http"
import * as Byok from "../../src/Byok.ts"
import * as Server from "../../src/http/Server.ts"
import { load, untilAcked } from "../support/database/AckChecker.ts"
import { serverSettings } from "../support/database/freshDatabase.ts"
import { type FaultyKeyStore, partsWith } from "../faults/FaultyKeyStore.ts"
import { checked, newBed } from "./Bed.ts"
import { newCluster } from "./Cluster.ts"
import { showAnswers } from "./deadline.ts"
import type { Findings, Row } from "./Row.ts"
import { enough } from "./underLoad.ts"
import { expectWell, watchGet } from "./watch.ts"

const seconds = 5

/** The service in this process, on a key store that fails as requested. */
const serve = (settings: Record<string, string>, store: FaultyKeyStore) =>
  Server.layer(serverSettings).pipe(
    Layer.provideMerge(Layer.effectContext(partsWith(store))),
    Layer.provide(Byok.layer),
    Layer.provide(ConfigProvider.layer(ConfigProvider.fromEnv({ env: { ...settings } }))),
    Layer.provideMerge(Logger.layer([])),
    Layer.build,
    Effect.map((context) => HttpServer.formatAddress(Context.get(context, HttpServer.HttpServer).address))
  )

const failing = (state: FaultyKeyStore["state"]) => (findings: Findings) =>
  Effect.gen(function* () {
    const { ledger } = findings
    const cluster = yield* newCluster()
    yield* cluster.start()
    const bed = yield* newBed(cluster)
    const store: FaultyKeyStore = { state: "well" }
    const during = Effect.gen(function* () {
      const url = yield* serve(bed.settings, store)
      const loaded = Effect.gen(function* () {
        yield* Effect.asVoid(load(url, bed.key, ledger, { pause: 5 }))
        yield* untilAcked(ledger, enough)
        store.state = state
        const gets = yield* watchGet(url, bed.key, ledger.acked[0]?.id)
        yield* Effect.promise(() => setTimeout(seconds * 1_000))
        expectWell(findings, "get", gets)
        store.state = "well"
        yield* untilAcked(ledger, enough)
      })
      yield* Effect.scoped(loaded)
    })
    yield* Effect.scoped(during)
    showAnswers(findings)
    findings.expect(ledger.unknown.length > 0, "no create has failed")
    findings.judge(yield* checked(bed, ledger))
  })

export const rows: ReadonlyArray<Row> = [
  { id: "R10", fault: `key store down for ${seconds} s`, run: failing("down") },
  { id: "R10", fault: `key store does not answer for ${seconds} s`, run: failing("slow") },
  { id: "R10", fault: `key store answers wrongly for ${seconds} s`, run: failing("wrong") }
]
