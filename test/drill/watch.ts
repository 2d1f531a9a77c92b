import { setTimeout } from "node:timers/promises"
import { Effect } from "effect"
import { statusOf } from "../bench/statusOf.ts"
import { deadline } from "./deadline.ts"
import { untilClosed } from "./untilClosed.ts"
import type { Findings } from "./Row.ts"

/** The answers to requests of one path during the load. */
interface Watched {
  answers: number
  /** Statuses other than 200. */
  readonly others: Array<number | undefined>
  /** The longest answer, in milliseconds. */
  slowest: number
}

const ask = async (url: string, headers: Record<string, string>, seen: Watched) => {
  const began = performance.now()
  const status = await statusOf(url, headers)
  seen.answers += 1
  seen.slowest = Math.max(seen.slowest, performance.now() - began)
  if (status !== 200) seen.others.push(status)
}

/** Keeps requesting a path until the scope closes. */
const watch = (url: string, headers: Record<string, string>) =>
  Effect.suspend(() => {
    const seen: Watched = { answers: 0, others: [], slowest: 0 }
    const turn = async () => {
      await ask(url, headers, seen)
      await setTimeout(20)
    }
    return Effect.as(untilClosed(turn), seen)
  })

const watchLiveness = (url: string) => watch(`${url}/health/live`, {})

const watchGet = (url: string, key: string, id = "") =>
  watch(`${url}/api/v1/byok/${id}`, { authorization: `Bearer ${key}` })

/** Requires that every watched request was answered with 200 before the deadline. */
const expectWell = (findings: Findings, name: string, { answers, others, slowest }: Watched): void => {
  findings.show(`${answers} of ${name}, slowest ${slowest.toFixed(0)} ms`)
  findings.expect(answers > 0 && slowest < deadline, `${name} was not answered in time`)
  findings.expect(others.length === 0, `${name} was answered with ${Array.from(new Set(others)).join(", ")}`)
}

/** Gets of the first credential and probes must be answered well while something else happens. */
export const answersMeanwhile = <A, E, R>(
  findings: Findings,
  url: string,
  key: string,
  happening: Effect.Effect<A, E, R>
) =>
  Effect.gen(function* () {
    const live = yield* watchLiveness(url)
    const gets = yield* watchGet(url, key, findings.ledger.acked[0]?.id)
    yield* happening
    return { "/health/live": live, get: gets }
  }).pipe(
    Effect.scoped,
    Effect.map((watched) => {
      for (const [name, seen] of Object.entries(watched)) expectWell(findings, name, seen)
    })
  )
