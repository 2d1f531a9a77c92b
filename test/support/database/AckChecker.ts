import { setTimeout } from "node:timers/promises"
import { Effect } from "effect"
import { eventually } from "../process/eventually.ts"

/** A credential that was acknowledged: the last acknowledged answer, and the key that was sent for it. */
export interface Acked {
  readonly id: string
  body: string
  key: string
  /** Keys that acknowledged updates have replaced. */
  readonly earlier: Array<string>
  /** Keys of later updates whose outcome is not known. */
  perhaps: Array<string>
  deleted: "no" | "perhaps" | "acknowledged"
}

/** Everything that the clients of a load know afterwards. */
export interface Ledger {
  /** Credentials whose 201 was read completely. */
  readonly acked: Array<Acked>
  /** Keys whose create had no answer, or a 5xx. */
  readonly unknown: Array<{ readonly key: string; readonly status: number | undefined }>
  /** Keys whose create was refused with a 4xx, or never sent. */
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

/** Several, because a pool has at most 1,000 credentials. */
const providers = ["openai", "azure", "xai", "groq", "mistral", "cohere", "deepseek", "together"]

const nextKey = () => `fake-key-${String((keys += 1)).padStart(9, "0")}`

/** Creates a credential, and returns it if acknowledged. */
export const createOne = async (url: string, token: string, ledger: Ledger): Promise<Acked | undefined> => {
  const key = nextKey()
  const began = performance.now()
  try {
    const response = await fetch(`${url}/api/v1/byok`, {
      method: "POST",
      headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
      body: JSON.stringify({ provider: providers[keys % providers.length], key, name: key })
    })
    const body = await response.text()
    if (response.status === 201) {
      const { data } = JSON.parse(body) as { readonly data: { readonly id: string } }
      const now = performance.now()
      ledger.longestGap = Math.max(ledger.longestGap, now - (ledger.latest ?? now))
      ledger.latest = now
      const acked: Acked = { id: data.id, body, key, earlier: [], perhaps: [], deleted: "no" }
      ledger.acked.push(acked)
      return acked
    }
    if (response.status < 500) ledger.refused.push(key)
    else ledger.unknown.push({ key, status: response.status })
    return undefined
  } catch (error) {
    if (neverSent(error)) {
      ledger.refused.push(key)
      await setTimeout(10)
    } else ledger.unknown.push({ key, status: undefined })
    return undefined
  } finally {
    ledger.slowest = Math.max(ledger.slowest, performance.now() - began)
  }
}

/** Replaces the key of a credential, and its name with it. */
const rotate = async (url: string, token: string, ledger: Ledger, acked: Acked) => {
  const key = nextKey()
  try {
    const response = await fetch(`${url}/api/v1/byok/${acked.id}`, {
      method: "PATCH",
      headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
      body: JSON.stringify({ key, name: key })
    })
    const body = await response.text()
    if (response.status === 200) {
      acked.earlier.push(acked.key, ...acked.perhaps)
      Object.assign(acked, { key, body, perhaps: [] })
    } else if (response.status < 500) ledger.refused.push(key)
    else acked.perhaps.push(key)
  } catch (error) {
    if (neverSent(error)) ledger.refused.push(key)
    else acked.perhaps.push(key)
  }
}

const remove = async (url: string, token: string, acked: Acked) => {
  try {
    const response = await fetch(`${url}/api/v1/byok/${acked.id}`, {
      method: "DELETE",
      headers: { authorization: `Bearer ${token}` }
    })
    await response.text()
    if (response.status === 200) acked.deleted = "acknowledged"
    else if (response.status >= 500) acked.deleted = "perhaps"
  } catch (error) {
    if (!neverSent(error)) acked.deleted = "perhaps"
  }
}

/** Creates a credential; rotates every third, and deletes every third of those again, but never the first of all. */
const live = async (url: string, token: string, ledger: Ledger, turn: number) => {
  const acked = await createOne(url, token, ledger)
  if (acked === undefined || turn % 3 !== 0) return
  await rotate(url, token, ledger, acked)
  if (turn % 9 === 0 && acked !== ledger.acked[0]) await remove(url, token, acked)
}

/** Clients that create one credential after another, change some and delete some, until the scope closes, which waits for requests in flight. */
export const load = (url: string, token: string, ledger: Ledger, { clients = 8, pause = 0 } = {}) =>
  Effect.acquireRelease(
    Effect.sync(() => {
      let going = true
      const loops = Array.from({ length: clients }, async () => {
        for (let turn = 1; going; turn += 1) {
          await live(url, token, ledger, turn)
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
  return eventually(`${more} more are acknowledged`, () => ledger.acked.length >= before + more)
}

/** A stored row: the name of the key, and the key that its ciphertext opens to. */
export interface Found {
  readonly id: string
  readonly name: string | null
  readonly key: string
}

/** Every contradiction between the stored rows and the ledger. */
export const faultsOf = (
  { acked, refused, unknown }: Ledger,
  rows: ReadonlyArray<Found>,
  answers: ReadonlyMap<string, string>
): ReadonlyArray<string> => {
  const byId = new Map(rows.map((row) => [row.id, row]))
  const sent = acked.flatMap(({ earlier, key, perhaps }) => [...earlier, key, ...perhaps])
  const known = new Set([...sent, ...unknown.map(({ key }) => key)])
  const kept = acked.filter(({ deleted }) => deleted === "no")
  const never = new Set(refused)
  const ids = acked.map(({ id }) => id)
  const seen = new Set<string>()
  const twice = ids.filter((id) => seen.size === seen.add(id).size)
  return [
    ...kept.filter(({ id }) => !byId.has(id)).map(({ id }) => `lost: ${id}`),
    ...acked
      .filter(({ deleted, id }) => deleted === "acknowledged" && byId.has(id))
      .map(({ id }) => `deleted and there again: ${id}`),
    ...kept
      .filter(({ body, id, perhaps }) => perhaps.length === 0 && answers.get(id) !== body)
      .map(({ id }) => `get answers otherwise: ${id}`),
    ...acked
      .filter(({ id, key, perhaps }) => ![undefined, key, ...perhaps].includes(byId.get(id)?.key))
      .map(({ id }) => `another key: ${id}`),
    ...rows.filter(({ key, name }) => key !== name).map(({ id }) => `opens to another key: ${id}`),
    ...rows.filter(({ key }) => !known.has(key)).map(({ id }) => `nobody sent it: ${id}`),
    ...rows.filter(({ key }) => never.has(key)).map(({ id }) => `refused and stored: ${id}`),
    ...twice.map((id) => `twice: ${id}`),
    ...(new Set(rows.map(({ key }) => key)).size < rows.length ? ["a key is stored twice"] : [])
  ]
}
