import { Effect } from "effect"
import { untilAcked } from "../support/database/AckChecker.ts"
import { eventually } from "../support/process/eventually.ts"
import { startService } from "../support/process/ServiceProcess.ts"
import { type Bed, checked } from "./Bed.ts"
import { deadline, margin, showAnswers } from "./deadline.ts"
import type { Findings } from "./Row.ts"
import { type Sent, steadyLoad } from "./steadyLoad.ts"
import { enough } from "./underLoad.ts"
import { watchLeader } from "./watchLeader.ts"

/** Minimum number of requests: those of 18 seconds. */
const requests = 720

/** Whether a failed request had no leader from a second after its start until a second before its deadline. */
const isExcused = ({ began, ended }: Sent, seen: ReadonlyArray<number>) =>
  ended - began > deadline - margin && !seen.some((at) => at > began + margin && at < began + deadline - margin)

/** Changes the leader under a steady load. A request may fail only if there was no leader before its deadline. */
export const throughChange = <E>(findings: Findings, bed: Bed, change: Effect.Effect<unknown, E>) =>
  Effect.gen(function* () {
    const { ledger } = findings
    const { sent, seen } = yield* Effect.scoped(
      Effect.gen(function* () {
        const { url } = yield* startService(bed.settings)
        const { DATABASE_CA_FILE: ca, DATABASE_URL: database = "" } = bed.settings
        const during = Effect.gen(function* () {
          const seen = yield* watchLeader(
            ca === undefined ? database : `${database}&sslrootcert=${encodeURIComponent(ca)}`
          )
          const sent = yield* steadyLoad(url, bed.key, ledger)
          yield* untilAcked(ledger, enough)
          yield* change
          yield* untilAcked(ledger, enough)
          yield* eventually(`${requests} requests have ended`, () => sent.length >= requests)
          return { sent, seen }
        })
        return yield* Effect.scoped(during)
      })
    )
    const failed = sent.filter(({ succeeded }) => !succeeded)
    const share = ((failed.length / sent.length) * 100).toFixed(1)
    const away = Math.max(...seen.slice(1).map((at, index) => at - (seen[index] ?? at)))
    findings.show(`${failed.length} of ${sent.length} requests failed (${share} %)`)
    findings.show(`no leader for ${away.toFixed(0)} ms`)
    const inexcusable = failed.filter((request) => !isExcused(request, seen))
    findings.expect(
      inexcusable.length === 0,
      `${inexcusable.length} requests failed although a leader was there before their deadline`
    )
    showAnswers(findings)
    findings.judge(yield* checked(bed, ledger))
  })
