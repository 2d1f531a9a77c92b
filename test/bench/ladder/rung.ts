import { createServer } from "node:http"
import * as NodeHttpServer from "@effect/platform-node/NodeHttpServer"
import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import { DateTime, Effect, Layer, Option, Redacted } from "effect"
import { HttpRouter, HttpServerResponse } from "effect/http"
import { credentialBody } from "../../../src/http/Handlers.ts"
import type { Credential } from "../../../src/domain/Credential.ts"
import * as Server from "../../../src/http/Server.ts"
import { plainCredential } from "../../support/database/plainCredential.ts"
import { serverSettings } from "../../support/database/freshDatabase.ts"
import { hashApiKey } from "../../../src/runtime/ApiKey.ts"
import { ApiKeys } from "../../../src/port/ApiKeys.ts"
import { Credentials } from "../../../src/port/Credentials.ts"
import { Events } from "../../../src/port/Events.ts"
import { Explanations } from "../../../src/port/Explanations.ts"
import { Readiness } from "../../../src/port/Readiness.ts"
import { account_id, seededId, workspace_id } from "../Bed.ts"
import { defaultSettings, neverDraining } from "../../support/service/defaultSettings.ts"

/** Serves one rung of the ladder: `node`, `router` or `http`, the whole HTTP side with stubs behind it. */
const [, , rung, key = ""] = process.argv
const address = { host: "127.0.0.1", port: Number(process.env["PORT"]) }

const credential: Credential = {
  ...plainCredential(workspace_id, seededId(1)),
  name: "seeded",
  label: "sk-...AbCd",
  allowed_models: ["a/model", "another/model"],
  created_at: DateTime.makeUnsafe("2026-01-31T09:30:00.123Z"),
  sort_order: 1
}
const text = credentialBody(credential)

const known = hashApiKey(Redacted.make(key))
const stubs = Layer.mergeAll(
  Layer.succeed(ApiKeys, {
    find: (hash) =>
      Effect.succeed(hash === known ? Option.some({ account_id, role: "management" as const }) : Option.none()),
    ownedBy: () => Effect.succeed(new Set())
  }),
  Layer.succeed(Credentials, {
    create: () => Effect.succeed({ credential, replayed: false }),
    get: () => Effect.succeed(credential),
    list: () => Effect.succeed({ credentials: [credential], total_count: 1 }),
    update: () => Effect.succeed(credential),
    order: (request) => Effect.succeed({ workspace_id, ...request }),
    delete: () => Effect.void
  }),
  Layer.mock(Events, {}),
  Layer.mock(Explanations, { verifies: true }),
  Layer.succeed(Readiness, { problems: Effect.succeed([]), warnings: Effect.succeed([]) })
)

switch (rung) {
  case "node":
    createServer((_request, response) => {
      response.writeHead(200, { "content-type": "application/json", "content-length": text.length }).end(text)
    }).listen(address.port, address.host)
    break
  case "router": {
    const routes = HttpRouter.use((router) =>
      router.add(
        "GET",
        "/api/v1/byok/:id",
        Effect.succeed(HttpServerResponse.text(text, { contentType: "application/json" }))
      )
    )
    HttpRouter.serve(routes, { disableLogger: true, disableListenLog: true }).pipe(
      Layer.provide(NodeHttpServer.layer(createServer, address)),
      Layer.launch,
      NodeRuntime.runMain
    )
    break
  }
  default:
    Server.layer({ ...serverSettings, ...address }).pipe(
      Layer.provide(stubs),
      Layer.provide([defaultSettings, neverDraining]),
      Layer.launch,
      NodeRuntime.runMain
    )
}
