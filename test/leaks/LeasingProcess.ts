import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import { Config, Effect, Layer, Redacted, Schema } from "effect"
import * as Byok from "../../src/wiring/Byok.ts"
import { CurrentPrincipal } from "../../src/domain/Principal.ts"
import { AccountId } from "../../src/domain/Identifiers.ts"
import { NewCredential } from "../../src/domain/NewCredential.ts"
import { RoutingRequest } from "../../src/domain/routing/RoutingRequest.ts"
import { Credentials } from "../../src/port/Credentials.ts"
import { Router } from "../../src/service/routing/Router.ts"
import * as Logging from "../../src/wiring/Logging.ts"
import { readSettings } from "../../src/wiring/Settings.ts"
import * as TelemetryLive from "../../src/wiring/TelemetryLive.ts"
import { leasePlants, leaseUses } from "./leases.ts"

/** The account, and the key to store for each use, by the name of the use. */
const Given = Schema.fromJsonString(
  Schema.Struct({ account_id: AccountId, keys: Schema.Record(Schema.String, Schema.String) })
)

/** A gateway in process: stores every key, leases it, and prints and logs everything that it has. */
const program = Effect.gen(function* () {
  const { account_id, keys } = Schema.decodeUnknownSync(Given)(Redacted.value(yield* Config.Redacted("LEASED")))
  const { create, update } = yield* Credentials
  const { plan } = yield* Router
  const asOwner = <A, E, R>(effect: Effect.Effect<A, E, R>) =>
    Effect.provideService(effect, CurrentPrincipal, { kind: "in_process", account_id })
  for (const [name, key] of Object.entries(keys)) {
    const { credential } = yield* asOwner(create(Schema.decodeUnknownSync(NewCredential)({ provider: "groq", key })))
    const { id, workspace_id } = credential
    const request = Schema.decodeUnknownSync(RoutingRequest)({
      ...{ account_id, workspace_id, credential_id: id, model: "a/model" },
      targets: [{ provider: "groq" }]
    })
    const planned = yield* plan(request)
    const change = Effect.asVoid(Effect.orDie(asOwner(update(id, { disabled: true }))))
    const use = leaseUses[name] ?? leasePlants[name]?.use ?? (() => Effect.die(new Error("no such use")))
    yield* Effect.withSpan(use({ plan: planned, request, change }), "use")
  }
})

readSettings.pipe(
  Effect.flatMap((settings) =>
    Effect.provide(program, Layer.provideMerge(Byok.layerWith(settings), TelemetryLive.traces(settings)))
  ),
  Effect.provide(Logging.layer),
  NodeRuntime.runMain
)
