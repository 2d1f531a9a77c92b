import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import { Console, Context, Effect, Layer, Redacted } from "effect"
import { HttpServer } from "effect/http"
import * as Byok from "../../src/wiring/Byok.ts"
import * as Server from "../../src/http/Server.ts"
import { managementPort } from "../../src/serve/serve.ts"
import * as Logging from "../../src/wiring/Logging.ts"
import { Credentials } from "../../src/port/Credentials.ts"
import * as CredentialsLive from "../../src/service/credentials/Credentials.ts"
import { readSettings } from "../../src/wiring/Settings.ts"
import * as TelemetryLive from "../../src/wiring/TelemetryLive.ts"
import * as CipherPlain from "../support/keys/CipherPlain.ts"
import type { Parts } from "../support/http/TestService.ts"
import { plants, withoutCipher } from "./plants.ts"
import { neverDraining } from "../support/service/defaultSettings.ts"

/** The control of the sweep: a service in which the name of a new credential selects a planted leak. */
const leaky = Layer.effectContext(
  Effect.gen(function* () {
    const parts = yield* Effect.context<Parts>()
    const honest = Context.get(parts, Credentials)
    const plain = yield* Effect.provide(CredentialsLive.make, CipherPlain.layer)
    return Context.add(parts, Credentials, {
      ...honest,
      create: (input, idempotency_key) => {
        const { create } = input.name === withoutCipher ? plain : honest
        const leak = plants[input.name ?? ""]?.leak(Redacted.value(input.key)) ?? Effect.void
        return Effect.andThen(leak, create(input, idempotency_key))
      }
    })
  })
)

const tellAddress = Layer.effectDiscard(
  Effect.flatMap(HttpServer.HttpServer, ({ address }) =>
    Console.log(`byok listens on ${HttpServer.formatAddress(address)}, leaking`)
  )
)

readSettings.pipe(
  Effect.flatMap((settings) =>
    tellAddress.pipe(
      Layer.provide(Server.layer(settings)),
      Layer.provideMerge(managementPort(settings)),
      Layer.provide([leaky, neverDraining]),
      Layer.provide(Byok.layerWith(settings)),
      Layer.provide(TelemetryLive.traces(settings)),
      Layer.launch
    )
  ),
  Effect.provide(Logging.layer),
  NodeRuntime.runMain
)
