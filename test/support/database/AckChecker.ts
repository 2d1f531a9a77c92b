import { setTimeout } from "node:timers/promises"
import { Effect } from "effect"
import { eventually } from "../process/eventually.ts"

/** A credential that was acknowledged: what create answered, and the key that was sent. */
export interface Acked {
  readonly id: string
  readonly body: string
  readonly key: string
}

/** What a client under load knows afterwards. */
export interface Ledger {
  /** 201 read completely. */
  readonly acked: Array<Acked>
  /** Keys that were sent without an outcome seen, or with a 5xx. */
  readonly unknown: Array<{ readonly key: string; readonly status: number | undefined }>
  /** Keys with a definite 4xx, or that never left. */
  readonly refused: Array<string>
  /** The longest answer, in milliseconds. */
  slowest: number
  /** The longest time without an acknowledgement between the first and the last one, in milliseconds. */
  longestGap: number
  latest: number | undefined
}

export const newLedger = (): Ledger => ({
  acked: [],
  unknown: [],
  refused: [],
  slowest: 0,
  longestGap: 0,
  latest: undefined
})

const neverSent = (error: unknown) => {
  const cause: unknown = error instanceof Error ? error.cause : undefined
  return cause instanceof Error && "code" in cause && cause.code === "ECONNREFUSED"
}

let keys = 0

/** Creates a credential; whether it was acknowledged. */
export const createOne = async (url: string, token: string, ledger: Ledger): Promise<boolean> => {
  const key = `fake-key-${String((keys += 1)).padStart(9, "0")}`
  const began = performance.now()
  try {
    const response = await fetch(`${url}/api/v1/byok`, {
      method: "POST",
      headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
      body: JSON.stringify({ provider: "openai", key, name: key })
    })
    const body = await response.text()
    if (response.status === 201) {
      const { data } = JSON.parse(body) as { readonly data: { readonly id: string } }
      const now = performance.now()
      ledger.longestGap = Math.max(ledger.longestGap, now - (ledger.latest ?? now))
      ledger.latest = now
      ledger.acked.push({ id: data.id, body, key })
      return true
    }
    if (response.status < 500) ledger.refused.push(key)
    else ledger.unknown.push({ key, status: response.status })
    return false
  } catch (error) {
    if (neverSent(error)) {
      ledger.refused.push(key)
      await setTimeout(10)
    } else ledger.unknown.push({ key, status: undefined })
    return false
  } finally {
    ledger.slowest = Math.max(ledger.slowest, performance.now() - began)
  }
}

/** Clients that create one credential after another until the scope closes, which waits for requests in flight. */
export const load = (url: string, token: string, ledger: Ledger, { clients = 8, pause = 0 } = {}) =>
  Effect.acquireRelease(
    Effect.sync(() => {
      let going = true
      const loops = Array.from({ length: clients }, async () => {
        while (going) {
          await createOne(url, token, ledger)
          if (pause > 0) await setTimeout(pause)
        }
      })
      return Effect.promise(() => {
        going = false
        return Promise.all(loops)
      })
    }),
    (end) => end
  )

/** Waits until this many more are acknowledged. */
export const untilAcked = (ledger: Ledger, more: number) => {
  const before = ledger.acked.length
  return eventually(
    `${more} more are acknowledged`,
    Effect.sync(() => ledger.acked.length >= before + more)
  )
}

/** A row as it is found afterwards: the key's name, and the key that its ciphertext opens to. */
export interface Found {
  readonly id: string
  readonly name: string | null
  readonly key: string
}

/** Every contradiction between what is stored and what was acknowledged. */
export const faultsOf = (
  { acked, refused, unknown }: Ledger,
  rows: ReadonlyArray<Found>,
  answers: ReadonlyMap<string, string>
): ReadonlyArray<string> => {
  const byId = new Map(rows.map((row) => [row.id, row]))
  const known = new Set([...acked.map(({ key }) => key), ...unknown.map(({ key }) => key)])
  const never = new Set(refused)
  const ids = acked.map(({ id }) => id)
  const seen = new Set<string>()
  const twice = ids.filter((id) => seen.size === seen.add(id).size)
  return [
    ...acked.filter(({ id }) => !byId.has(id)).map(({ id }) => `lost: ${id}`),
    ...acked.filter(({ body, id }) => answers.get(id) !== body).map(({ id }) => `get answers otherwise: ${id}`),
    ...acked.filter(({ id, key }) => byId.has(id) && byId.get(id)?.key !== key).map(({ id }) => `another key: ${id}`),
    ...rows.filter(({ key, name }) => key !== name).map(({ id }) => `opens to another key: ${id}`),
    ...rows.filter(({ key }) => !known.has(key)).map(({ id }) => `nobody sent it: ${id}`),
    ...rows.filter(({ key }) => never.has(key)).map(({ id }) => `refused and stored: ${id}`),
    ...twice.map((id) => `twice: ${id}`),
    ...(new Set(rows.map(({ key }) => key)).size < rows.length ? ["a key is stored twice"] : [])
  ]
}
