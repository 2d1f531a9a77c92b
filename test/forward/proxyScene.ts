import { Effect, Layer } from "effect"
import { join } from "node:path"
import * as ForwardServer from "../../src/forward/ForwardServer.ts"
import { serverSettings } from "../support/database/freshDatabase.ts"
import { createdId } from "../support/http/Bodies.ts"
import { bearer, type Header, send } from "../support/http/HttpProbe.ts"
import { TestService } from "../support/http/TestService.ts"
import { temporaryDirectory } from "../support/process/temporaryDirectory.ts"
import { assert } from "../support/it.ts"

export const key = "sk-0123456789-0123456789-AbCd"
export const bad = "sk-rejected-0123456789-0123456789"
export const slow = "sk-limited-0123456789-0123456789"

/** A socket for proxies, and an account with an API key of a caller. */
export const scene = Effect.fnUntraced(function* (...bodies: ReadonlyArray<string | object>) {
  const tenant = yield* TestService.newTenant
  for (const one of bodies) {
    createdId(yield* tenant.create(typeof one === "string" ? { provider: "openai", key: one } : one))
  }
  const path = join(yield* temporaryDirectory, "forward.sock")
  yield* Layer.build(Layer.fresh(ForwardServer.layer(serverSettings, path)))
  const caller = yield* tenant.ordinaryKey
  const ask = (target: string, headers: ReadonlyArray<Header> = [], method = "GET") =>
    send(path, { method, path: target, headers })
  const forward = (target = "openai", headers: ReadonlyArray<Header> = [], method?: string) =>
    ask(`/v1/forward/${target}`, [bearer(caller), ...headers], method)
  return { tenant, path, caller, ask, forward }
})

export type Answer = Effect.Success<ReturnType<typeof send>>

export const keyIn = ({ body, headers, status }: Answer) => {
  assert.deepStrictEqual([status, body, headers["cache-control"]], [200, "", "no-store"])
  return headers["authorization"]?.replace("Bearer ", "")
}
const attemptIn = ({ headers }: Answer) => headers["x-byok-attempt"] ?? assert.fail("no attempt")
export const told = (
  answer: Answer,
  status: number | string,
  more: ReadonlyArray<Header> = []
): ReadonlyArray<Header> => [["X-Byok-Attempt", attemptIn(answer)], ["X-Byok-Status", String(status)], ...more]
export const errorIn = ({ body }: Answer) =>
  (JSON.parse(body) as { error: { code: number; message: string; metadata?: { issues: ReadonlyArray<object> } } }).error
