import { createServer } from "node:http"
import * as NodeHttpServer from "@effect/platform-node/NodeHttpServer"
import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import { DateTime, Effect, Layer, Option, Redacted } from "effect"
import { HttpRouter, HttpServerResponse } from "effect/http"
import type { Credential } from "../../../src/domain/Credential.ts"
import { AccountId, CredentialId, WorkspaceId } from "../../../src/domain/Identifiers.ts"
import * as Server from "../../../src/http/Server.ts"
import { serverSettings } from "../../support/database/freshDatabase.ts"
import { hashApiKey } from "../../../src/port/ApiKey.ts"
import { ApiKeys } from "../../../src/port/ApiKeys.ts"
import { Credentials } from "../../../src/port/Credentials.ts"
import { Explanations } from "../../../src/port/Explanations.ts"
import { Readiness } from "../../../src/port/Readiness.ts"

/** Serves one rung of the ladder: `node`, `router` or `http`, the whole HTTP side with stubs behind it. */
const [, , rung, key = ""] = process.argv
const address = { host: "127.0.0.1", port: Number(process.env["PORT"]) }

const account_id = AccountId.make("00000000-0000-7000-8000-00000000000a")
const credential: Credential = {
  id: CredentialId.make("00000000-0000-7000-9000-000000000001"),
  workspace_id: WorkspaceId.make("00000000-0000-7000-8000-00000000000b"),
  provider: "anthropic",
  name: "seeded",
  label: "sk-...AbCd",
  created_at: DateTime.makeUnsafe("2026-01-31T09:30:00.123Z"),
  disabled: false,
  is_fallback: false,
  is_required: false,
  is_byok_only: false,
  allowed_api_key_hashes: null,
  allowed_models: ["a/model", "another/model"],
  allowed_user_ids: null,
  declared_region: null,
  declared_zdr: null,
  sort_order: 1
}
const text = JSON.stringify({ data: { ...credential, created_at: "2026-01-31T09:30:00.123Z" } })

const known = hashApiKey(Redacted.make(key))
const stubs = Layer.mergeAll(
  Layer.succeed(ApiKeys, {
    find: (hash) => Effect.succeed(hash === known ? Option.some({ account_id, management: true }) : Option.none()),
    ownedBy: () => Effect.succeed(new Set())
  }),
  Layer.succeed(Credentials, {
    create: () => Effect.succeed(credential),
    createOnce: () => Effect.succeed({ credential, replayed: false }),
    get: () => Effect.succeed(credential),
    list: () => Effect.succeed({ credentials: [credential], total_count: 1 }),
    update: () => Effect.succeed(credential),
    delete: () => Effect.void
  }),
  Layer.succeed(Explanations, { explain: () => Effect.die("not measured"), verifies: true }),
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
    Server.layer({ ...serverSettings, ...address }).pipe(Layer.provide(stubs), Layer.launch, NodeRuntime.runMain)
}
