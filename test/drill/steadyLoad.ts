import { setTimeout } from "node:timers/promises"
import { Effect } from "effect"
import { createOne, type Ledger } from "../support/database/AckChecker.ts"

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

const getOne = (url: string, token: string, { acked }: Ledger) => {
  const { id = "" } = acked[Math.floor(Math.random() * acked.length)] ?? {}
  return fetch(`${url}/api/v1/byok/${id}`, { headers: { authorization: `Bearer ${token}` } }).then(
    async (response) => {
      await response.arrayBuffer()
      return response.status === 200
    },
    () => false
  )
}

/**
 * Creates and gets in turn, as many a second however long they take, until the scope closes, which waits for requests in
 * flight.
 */
export const steadyLoad = (url: string, token: string, ledger: Ledger) =>
  Effect.map(
    Effect.acquireRelease(
      Effect.sync(() => {
        const sent: Array<Sent> = []
        const inFlight = new Set<Promise<void>>()
        let going = true
        const send = async (request: typeof createOneMore) => {
          const began = performance.now()
          const succeeded = await request(url, token, ledger)
          sent.push({ began, ended: performance.now(), succeeded })
        }
        const loop = async () => {
          for (let turn = 0; going; turn += 1) {
            const request = send(turn % 2 === 0 || ledger.acked.length === 0 ? createOneMore : getOne)
            inFlight.add(request)
            void request.then(() => inFlight.delete(request))
            await setTimeout(interval)
          }
        }
        const ended = loop()
        const end = async () => {
          going = false
          await ended
          await Promise.all(inFlight)
        }
        return { sent, end: Effect.promise(end) }
      }),
      ({ end }) => end
    ),
    ({ sent }): ReadonlyArray<Sent> => sent
  )
