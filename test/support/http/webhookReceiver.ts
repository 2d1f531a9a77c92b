import { createServer, type IncomingHttpHeaders } from "node:http"
import { Effect } from "effect"
import { Webhook } from "standardwebhooks"
import { listening } from "../database/listen.ts"

/** What the endpoint answers to a request; it loses an answer by closing the connection. */
export type Answer = 200 | 204 | 302 | 500 | "lost" | "never"

export interface Received {
  readonly headers: IncomingHttpHeaders
  readonly body: string
  readonly answer: Answer
}

/** An endpoint that records each request before it answers. */
const makeReceiver = (answerTo: (nth: number) => Answer, tell: (received: Received) => void) => {
  let requests = 0
  return createServer((request, response) => {
    let body = ""
    request.setEncoding("utf8").on("data", (part: string) => (body += part))
    request.on("end", () => {
      const answer = answerTo(requests++)
      tell({ headers: request.headers, body, answer })
      if (answer === "lost") return request.socket.destroy()
      if (answer !== "never")
        response.writeHead(answer, answer === 302 ? { location: "/elsewhere" } : {}).end("ignored")
    })
  })
}

/** Receives in this process until the scope closes, and answers 200 when the answers are used up. */
export const receiver = (answers: ReadonlyArray<Answer>) =>
  Effect.gen(function* () {
    const received: Array<Received> = []
    const open = { now: 0, most: 0 }
    const server = makeReceiver(
      (nth) => answers[nth] ?? 200,
      (one) => received.push(one)
    )
    server.on("request", (_request, response) => {
      open.most = Math.max(open.most, (open.now += 1))
      response.once("close", () => (open.now -= 1))
    })
    const port = yield* listening(server)
    return { url: new URL(`http://127.0.0.1:${port}/hook`), received, open }
  })

/** Whether the reference implementation of Standard Webhooks takes a message, with a secret as its file has it. */
export const verifies = (secret: string, { body, headers }: Pick<Received, "body" | "headers">): boolean => {
  try {
    new Webhook(secret).verify(body, headers as Record<string, string>)
    return true
  } catch {
    return false
  }
}
