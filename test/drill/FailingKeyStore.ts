import { ConfigProvider, Context, Effect, Layer, Logger } from "effect"
import { HttpServer } from "effect/http"
import * as Byok from "../../src/wiring/Byok.ts"
import * as Server from "../../src/http/Server.ts"
import { load, untilAcked } from "../support/database/AckChecker.ts"
import { serverSettings } from "../support/database/freshDatabase.ts"
import { type FaultyKeyStore, partsWith } from "../faults/FaultyKeyStore.ts"
import { pause } from "./deadline.ts"
import type { Findings, Row } from "./Row.ts"
import { enough, judge, newClusterBed } from "./underLoad.ts"
import { answersMeanwhile } from "./watch.ts"
import { neverDraining } from "../support/service/defaultSettings.ts"

const seconds = 5

/** The service in this process, on a key store that fails as requested. */
const serve = (settings: Record<string, string>, store: FaultyKeyStore) =>
  Server.layer(serverSettings).pipe(
    Layer.provideMerge(Layer.effectContext(partsWith(store))),
    Layer.provide([Byok.layer, neverDraining]),
    Layer.provide(ConfigProvider.layer(ConfigProvider.fromEnv({ env: { ...settings } }))),
    Layer.provideMerge(Logger.layer([])),
    Layer.build,
    Effect.map((context) => HttpServer.formatAddress(Context.get(context, HttpServer.HttpServer).address))
  )

const failing = (state: FaultyKeyStore["state"]) => (findings: Findings) =>
  Effect.gen(function* () {
    const { ledger } = findings
    const { bed } = yield* newClusterBed()
    const store: FaultyKeyStore = { state: "well" }
    const during = Effect.gen(function* () {
      const url = yield* serve(bed.settings, store)
      const loaded = Effect.gen(function* () {
        yield* Effect.asVoid(load(url, bed.key, ledger, { pause: 5 }))
        yield* untilAcked(ledger, enough)
        store.state = state
        yield* answersMeanwhile(findings, url, bed.key, pause(seconds * 1_000))
        store.state = "well"
        yield* untilAcked(ledger, enough)
      })
      yield* Effect.scoped(loaded)
    })
    yield* Effect.scoped(during)
    yield* judge(findings, bed, { fails: true })
  })

export const rows: ReadonlyArray<Row> = [
  { id: "R10", fault: `key store down for ${seconds} s`, run: failing("down") },
  { id: "R10", fault: `key store does not answer for ${seconds} s`, run: failing("slow") },
  { id: "R10", fault: `key store answers wrongly for ${seconds} s`, run: failing("wrong") }
]
