import { setTimeout } from "node:timers/promises"
import { Effect } from "effect"
import { createOne, type Ledger } from "../support/database/AckChecker.ts"
import { statusOf } from "../bench/statusOf.ts"
import { untilClosed } from "./untilClosed.ts"

/** A request that has ended; times are of the monotonic clock, in milliseconds. */
export interface Sent {
  readonly began: number
  readonly ended: number
  readonly succeeded: boolean
}

/** Milliseconds from one request to the next: 40 a second. */
const interval = 25

const createOneMore = async (url: string, token: string, ledger: Ledger) =>
  (await createOne(url, token, ledger)) !== undefined

const getOne = async (url: string, token: string, { acked }: Ledger) => {
  const { id = "" } = acked[Math.floor(Math.random() * acked.length)] ?? {}
  return (await statusOf(`${url}/api/v1/byok/${id}`, { authorization: `Bearer ${token}` })) === 200
}

/**
 * Creates and gets in turn, as many a second however long they take, until the scope closes, which waits for requests in
 * flight.
 */
export const steadyLoad = Effect.fnUntraced(function* (url: string, token: string, ledger: Ledger) {
  const sent: Array<Sent> = []
  const inFlight = new Set<Promise<void>>()
  const send = async (request: typeof createOneMore) => {
    const began = performance.now()
    const succeeded = await request(url, token, ledger)
    sent.push({ began, ended: performance.now(), succeeded })
  }
  let turn = 0
  yield* Effect.addFinalizer(() => Effect.promise(() => Promise.all(inFlight)))
  yield* untilClosed(async () => {
    const request = send(turn % 2 === 0 || ledger.acked.length === 0 ? createOneMore : getOne)
    turn += 1
    inFlight.add(request)
    void request.then(() => inFlight.delete(request))
    await setTimeout(interval)
  })
  return sent
})
