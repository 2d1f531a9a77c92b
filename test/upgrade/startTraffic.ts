import { randomUUID } from "node:crypto"
import type { Rotation } from "./makeRotation.ts"

/** What clients saw. */
export interface Traffic {
  requests: number
  /** The request and what came instead of the answer that it should have. */
  readonly failed: Array<string>
  /** Credentials that were acknowledged: the body of the answer by id. */
  readonly stored: Map<string, string>
}

interface Answer {
  readonly status: number
  readonly replayed: boolean
  readonly body: string
}

/** Clients that create, repeat their creates and read them back, whichever instance answers, until stopped. */
export const startTraffic = ({ call }: Rotation, management_key: string, clients: number) => {
  const traffic: Traffic = { requests: 0, failed: [], stored: new Map() }
  const headers = { authorization: `Bearer ${management_key}`, "content-type": "application/json" }
  let running = true

  const ask = async (what: string, path: string, wanted: (answer: Answer) => boolean, init: RequestInit) => {
    traffic.requests += 1
    try {
      const answer = await call(async (url): Promise<Answer> => {
        const response = await fetch(`${url}/api/v1/byok${path}`, init)
        const replayed = response.headers.get("idempotent-replayed") === "true"
        return { status: response.status, replayed, body: await response.text() }
      })
      if (wanted(answer)) return answer
      traffic.failed.push(`${what}: ${answer.status} ${answer.replayed ? "replayed " : ""}${answer.body}`)
    } catch (error) {
      traffic.failed.push(`${what}: ${String(error instanceof Error ? (error.cause ?? error) : error)}`)
    }
    return undefined
  }

  const create = async (more: Record<string, string>) => {
    const body = JSON.stringify({ provider: "openai", key: `fake-key-${randomUUID()}`, allowed_models: ["gpt-4o"] })
    const init: RequestInit = { method: "POST", headers: { ...headers, ...more }, body }
    const created = await ask("create", "", ({ replayed, status }) => status === 201 && !replayed, init)
    if (created === undefined) return
    const { data } = JSON.parse(created.body) as { readonly data: { readonly id: string } }
    traffic.stored.set(data.id, created.body)
    const isTheSame = ({ body }: Answer) => body === created.body
    await ask("get", `/${data.id}`, (answer) => answer.status === 200 && isTheSame(answer), { headers })
    if (!("idempotency-key" in more)) return
    await ask("repeat", "", (answer) => answer.status === 201 && answer.replayed && isTheSame(answer), init)
  }

  const client = async () => {
    while (running) {
      await create({})
      await create({ "idempotency-key": randomUUID() })
    }
  }

  const ended = Promise.all(Array.from({ length: clients }, client))
  return {
    traffic,
    stop: async () => {
      running = false
      await ended
      return traffic
    }
  }
}
