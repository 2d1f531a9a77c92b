import { connect } from "node:net"
import type { Seen } from "../Load.ts"

interface Answer {
  readonly status: number
  readonly body: string
}

/** A connection to a Unix socket that sends one request after the other, with as little work of its own as possible. */
const connectTo = (path: string) => {
  const socket = connect(path).setEncoding("latin1")
  let received = ""
  let needed = 0
  let answered: (answer: Answer) => void = () => {}
  let failed: (error: Error) => void = () => {}
  socket.on("data", (part: string) => {
    received += part
    if (received.length < needed) return
    const head = received.indexOf("\r\n\r\n") + 4
    if (head < 4) return
    needed = head + Number(/content-length: (\d+)/i.exec(received)?.[1])
    if (received.length < needed) return
    needed = 0
    const answer = { status: Number(received.slice(9, 12)), body: received.slice(head) }
    received = ""
    answered(answer)
  })
  socket.once("error", (error) => failed(error))
  socket.once("close", () => failed(new Error("the server closed the connection")))
  return {
    post: (route: string, body: string) =>
      new Promise<Answer>((resolve, reject) => {
        answered = resolve
        failed = reject
        const head = `POST ${route} HTTP/1.1\r\nHost: byok\r\nContent-Type: application/json\r\nContent-Length: ${body.length}`
        socket.write(`${head}\r\n\r\n${body}`)
      }),
    close: () => socket.destroy()
  }
}

interface Handed {
  readonly next: { readonly attempt: string; readonly key: string } | null
  readonly reports?: ReadonlyArray<{ readonly outcome?: string }>
}

const percentile = (sorted: Float64Array, part: number) => sorted[Math.floor(sorted.length * part)] ?? Number.NaN

/** What a gateway asks for one of its customers. */
const requestFor = (account_id: string) => ({
  account_id,
  model: "a/model",
  targets: [{ provider: "azure", endpoint: { shared: false } }]
})

/** Asks for attempts of an account that are explained, or have no key, until the time is over. Returns their number. */
export const explainOver = async (
  path: string,
  account_id: string,
  {
    connections,
    explain,
    seconds
  }: { readonly connections: number; readonly explain: boolean; readonly seconds: number }
): Promise<number> => {
  const target = { provider: "anthropic", endpoint: { shared: false } }
  const host = explain ? "global" : "us"
  const body = JSON.stringify({ ...requestFor(account_id), targets: [target], host, explain })
  const until = performance.now() + seconds * 1000
  let n = 0
  const one = async () => {
    const { close, post } = connectTo(path)
    for (; performance.now() < until; n += 1) {
      const { body: answer, status } = await post("/v1/attempts", body)
      // Not parsed, because that would delay the measurement in this process.
      if (status !== 200 || answer.slice(0, 200).includes('"next":null') === explain)
        throw new Error(`A request was answered ${status}`)
    }
    close()
  }
  await Promise.all(Array.from({ length: connections }, one))
  return n
}

/**
 * Routes requests over so many connections to a Unix socket: asks for an attempt, checks that it has a key, and reports it,
 * by itself or along with the next request. Latencies are those of asking.
 */
export const routeOver = async (
  path: string,
  accounts: ReadonlyArray<string>,
  { connections, rides, seconds }: { readonly connections: number; readonly rides: boolean; readonly seconds: number }
): Promise<Seen> => {
  const bodies = accounts.map((account_id) => JSON.stringify(requestFor(account_id)).slice(0, -1))
  const latencies: Array<number> = []
  const began = performance.now()
  const until = began + seconds * 1000
  let n = 0
  let errors = 0
  const one = async () => {
    const { close, post } = connectTo(path)
    let riding = ""
    while (performance.now() < until) {
      const sent = performance.now()
      const handed = await post("/v1/attempts", `${bodies[n++ % bodies.length]}${riding}}`)
      latencies.push(performance.now() - sent)
      const { data } = JSON.parse(handed.body) as { readonly data?: Handed }
      if (data?.next?.key.startsWith("sk-") !== true) {
        errors += 1
        continue
      }
      if (riding !== "" && data.reports?.[0]?.outcome !== "succeeded") errors += 1
      const report = `"reports":[{"attempt":"${data.next.attempt}","status":200}]`
      if (rides) {
        riding = `,${report}`
        continue
      }
      const reported = await post("/v1/reports", `{${report}}`)
      if (reported.status !== 200 || !reported.body.includes('"succeeded"')) errors += 1
    }
    close()
  }
  await Promise.all(Array.from({ length: connections }, one))
  const elapsed = (performance.now() - began) / 1000
  const sorted = Float64Array.from(latencies).sort()
  const [p50, p99] = [percentile(sorted, 0.5), percentile(sorted, 0.99)]
  return { requests: latencies.length, seconds: elapsed, p50, p99, errors }
}
