import { Context, Effect } from "effect"
import { Credentials } from "../../src/port/Credentials.ts"
import { MemoryBudget } from "../../src/runtime/MemoryBudget.ts"
import { Router } from "../../src/service/routing/Router.ts"
import { minimal, unknownId } from "../support/http/Bodies.ts"
import { bearer, type Header, json, render } from "../support/http/HttpProbe.ts"
import { open } from "../support/http/RawConnection.ts"
import { type Parts, TestService } from "../support/http/TestService.ts"
import { wipedBy } from "../support/http/wipedBy.ts"
import { eventually } from "../support/process/eventually.ts"
import { assert, layerLive } from "../support/it.ts"
import { openSocket, own } from "./socket.ts"

let began = 0
let left = 0
const endless = Effect.suspend(() => {
  began += 1
  return Effect.onInterrupt(Effect.never, () => Effect.sync(() => void (left += 1)))
})

/** Parts in which creates and attempts never end. */
const waiting = Effect.map(Effect.context<Parts>(), (parts) =>
  parts.pipe(
    Context.add(Credentials, { ...Context.get(parts, Credentials), create: () => endless }),
    Context.add(Router, { ...Context.get(parts, Router), nextAttempt: () => endless })
  )
)

const onPort = Effect.gen(function* () {
  const { url } = yield* TestService
  const { management_key } = yield* TestService.newTenant
  const headers = [bearer(management_key), json]
  return { to: url, path: "/api/v1/byok", headers, body: JSON.stringify(minimal), use: "body" as const }
})

const onSocket = Effect.gen(function* () {
  const to = yield* openSocket
  const body = JSON.stringify({ account_id: unknownId, model: "a/model", targets: [own] })
  return { to, path: "/v1/attempts", headers: [json], body, use: "gateway" as const }
})

const places = [
  ["the port", onPort],
  ["the socket", onSocket]
] as const

layerLive(TestService.layerWith({ parts: waiting }))("when a client disconnects", (it) => {
  it.effect.each(places)("from %s while it sends a body, the received part is wiped", function* ([, place]) {
    const { body, headers, path, to, use } = yield* place
    const { held } = yield* MemoryBudget
    const before = held[use]
    const length: Header = ["Content-Length", String(body.length + 1)]
    const wiped = yield* wipedBy(
      Effect.gen(function* () {
        yield* Effect.scoped(
          Effect.gen(function* () {
            yield* (yield* open(to)).write(render({ method: "POST", path, headers: [...headers, length], body }))
            yield* eventually("what has arrived is held", () => held[use] >= before + body.length)
          })
        )
        yield* eventually("it is released", () => held[use] === before)
      })
    )
    assert.include(wiped, body)
  })

  it.effect.each(places)("from %s while its request is in progress, the request is interrupted", function* ([, place]) {
    const { body, headers, path, to } = yield* place
    const before = { began, left }
    yield* Effect.scoped(
      Effect.gen(function* () {
        yield* (yield* open(to)).write(render({ method: "POST", path, headers, body }))
        yield* eventually("it has begun", () => began === before.began + 1)
        assert.strictEqual(left, before.left, "control")
      })
    )
    yield* eventually("it is given up", () => left === before.left + 1)
  })
})
