import { rmSync } from "node:fs"
import { createServer } from "node:http"
import * as NodeHttpServer from "@effect/platform-node/NodeHttpServer"
import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import { Effect, Layer, Result, Scope } from "effect"
import { HttpRouter, HttpServerRequest, HttpServerResponse } from "effect/http"
import * as GatewayServer from "../../../src/gateway/GatewayServer.ts"
import { AttemptMac, macLength } from "../../../src/port/AttemptMac.ts"
import { Cipher } from "../../../src/port/Cipher.ts"
import { CredentialPools } from "../../../src/port/CredentialPools.ts"
import { Router } from "../../../src/service/routing/Router.ts"
import * as Byok from "../../../src/wiring/Byok.ts"
import { readSettings } from "../../../src/wiring/Settings.ts"
import { neverDraining } from "../../support/service/defaultSettings.ts"

/**
 * Serves routed requests with some layers of the service: `node` and `router` have none, and answer what the service
 * answered once; the others replace the layers that are not named by stubs, which remember one answer.
 */
const [, , rung = "", ...layers] = process.argv
const path = process.env["BYOK_GATEWAY_SOCKET"] ?? ""
const has = (layer: string) => layers.includes(layer)

const next = {
  attempt: "AAAAAAAAAAAAAAAAAAAAAAAAAAAA".repeat(12),
  step: "own",
  provider: "azure",
  credential_id: "00000000-0000-4000-8000-000000000000",
  label: "sk-...6789",
  region: null,
  key: "sk-0-0123456789-0123456789-0123456789-0123456789"
}
const answerTo = (asked: { readonly reports?: ReadonlyArray<unknown> }) => {
  const reports = asked.reports?.map(() => ({ outcome: "succeeded" }))
  return JSON.stringify({ data: { outcome: null, next, retry_at: null, ...(reports && { reports }) } })
}

/** Remembers the first answer for each first argument. */
const remembered = <Args extends ReadonlyArray<unknown>, A, E, R>(
  ask: (...args: Args) => Effect.Effect<A, E, R>,
  nameOf: (...args: Args) => unknown
) => {
  const answers = new Map<unknown, A>()
  return (...args: Args): Effect.Effect<A, E, R> => {
    const name = nameOf(...args)
    const answer = answers.get(name)
    if (answer !== undefined) return Effect.succeed(answer)
    return Effect.tap(ask(...args), (first) => Effect.sync(() => answers.set(name, first)))
  }
}

const stubMac = Layer.effect(
  AttemptMac,
  Effect.map(AttemptMac, ({ kekId }) => {
    const mac = Buffer.alloc(macLength, 1)
    return { kekId, macOf: () => mac }
  })
)

const stubCipher = Layer.effect(
  Cipher,
  Effect.map(Cipher, (real) => ({
    ...real,
    read: (_sealed, _context, use) => Result.succeed(use(Buffer.from(next.key)))
  }))
)

const stubDatabase = Layer.effect(
  CredentialPools,
  Effect.map(CredentialPools, (real) => ({
    ...real,
    versions: remembered(real.versions, ({ account_id }) => account_id)
  }))
)

const stubPlanner = Layer.effect(
  Router,
  Effect.map(Router, (real) => ({
    ...real,
    nextAttempt: remembered(
      // A scope that stays open, so that the remembered key is not wiped.
      (...asked) => Effect.provideService(real.nextAttempt(...asked), Scope.Scope, Scope.makeUnsafe()),
      (request) => ("account_id" in request ? request.account_id : undefined)
    )
  }))
)

switch (rung) {
  case "node":
    rmSync(path, { force: true })
    createServer((request, response) => {
      const parts: Array<Buffer> = []
      request.on("data", (part: Buffer) => parts.push(part))
      request.on("end", () => {
        const text = answerTo(JSON.parse(Buffer.concat(parts).toString()) as object)
        response.writeHead(200, { "content-type": "application/json", "content-length": text.length }).end(text)
      })
    }).listen(path)
    break
  case "router": {
    const routes = HttpRouter.use((router) =>
      router.add(
        "POST",
        "/v1/attempts",
        Effect.map(
          Effect.flatMap(HttpServerRequest.HttpServerRequest, ({ json }) => json),
          (body) => HttpServerResponse.text(answerTo(body as object), { contentType: "application/json" })
        )
      )
    )
    HttpRouter.serve(routes, { disableLogger: true, disableListenLog: true }).pipe(
      Layer.provide(NodeHttpServer.layer(createServer, { path })),
      Layer.launch,
      NodeRuntime.runMain
    )
    break
  }
  default: {
    const settings = Effect.runSync(readSettings)
    const replaced = <I, E, R>(name: string, stub: Layer.Layer<I, E, R>) => (has(name) ? Layer.empty : stub)
    const ports = Layer.mergeAll(
      replaced("mac", stubMac),
      replaced("cipher", stubCipher),
      replaced("database", stubDatabase)
    )
    const router = Layer.provideMerge(replaced("planner", stubPlanner), Layer.fresh(Router.layer))
    GatewayServer.layer(settings, path).pipe(
      Layer.provide(Layer.provideMerge(router, ports)),
      Layer.provide([neverDraining]),
      Layer.provide(Byok.layerWith(settings)),
      Layer.launch,
      NodeRuntime.runMain
    )
  }
}
