import { Effect } from "effect"
import { ServiceUnavailable } from "../domain/Errors.ts"
import { CurrentDeadline } from "../port/Deadline.ts"

/** How many requests of one party are handled at a time while another party is active. */
const contended = 4

/** How long a party counts as active after its last request, in milliseconds. */
const activity = 1000

/** The requests of one party: how many are in progress, and what starts each of the others. */
interface Line {
  running: number
  readonly waiting: Set<() => void>
}

/**
 * Makes turns for the parties that share a process (F9). Alone, a party may have half of the queue in progress; as soon
 * as another party is active, it has `contended` requests in progress and the rest wait in its own line. So whatever
 * one party sends, the next request of another has few ahead of it. A party with `limit` requests in all gets no more.
 */
export const makeFairTurns = (queue: number) => {
  const alone = Math.max(1, Math.floor(queue / 2))
  const lines = new Map<string, Line>()
  let latest = { party: "", at: -activity }
  let other = { party: "", at: -activity }

  const note = (party: string) => {
    const at = performance.now()
    if (latest.party === party) latest.at = at
    else {
      other = latest
      latest = { party, at }
    }
  }
  const share = (party: string) => {
    const rival = latest.party === party ? other : latest
    return performance.now() - rival.at < activity ? Math.min(contended, alone) : alone
  }
  const lineOf = (party: string) => {
    const found = lines.get(party)
    if (found !== undefined) return found
    const line: Line = { running: 0, waiting: new Set() }
    lines.set(party, line)
    return line
  }
  const leave = (party: string, line: Line) => {
    line.running -= 1
    const free = share(party) - line.running
    let started = 0
    for (const start of line.waiting) {
      if (started >= free) break
      line.waiting.delete(start)
      started += 1
      start()
    }
    if (line.running === 0 && line.waiting.size === 0) lines.delete(party)
  }

  return <A, E, R>(party: string, limit: number, request: Effect.Effect<A, E, R>) =>
    Effect.withFiber((fiber): Effect.Effect<A, E | ServiceUnavailable, R> => {
      note(party)
      const line = lineOf(party)
      if (line.running + line.waiting.size >= limit) return Effect.fail(new ServiceUnavailable())
      const turn = Effect.onExit(request, () => Effect.sync(() => leave(party, line)))
      if (line.running < share(party)) {
        line.running += 1
        return turn
      }
      const until = fiber.getRef(CurrentDeadline)?.until ?? performance.now()
      let started = false
      const wait = Effect.callback<true, ServiceUnavailable>((resume) => {
        const start = () => {
          clearTimeout(timer)
          started = true
          line.running += 1
          resume(Effect.succeed(true))
        }
        const giveUp = () => {
          line.waiting.delete(start)
          resume(Effect.fail(new ServiceUnavailable()))
        }
        const timer = setTimeout(giveUp, Math.max(0, until - performance.now()))
        line.waiting.add(start)
        return Effect.sync(() => {
          clearTimeout(timer)
          line.waiting.delete(start)
          if (started) leave(party, line)
        })
      })
      return Effect.flatMap(wait, () => turn)
    })
}
