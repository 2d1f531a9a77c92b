import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import { Effect, Layer } from "effect"
import * as Byok from "../../../src/wiring/Byok.ts"
import * as Server from "../../../src/http/Server.ts"
import { ApiKeys } from "../../../src/port/ApiKeys.ts"
import { Credentials } from "../../../src/port/Credentials.ts"
import { readSettings } from "../../../src/wiring/Settings.ts"
import { changing } from "../../support/service/asTenant.ts"
import { isDelayed } from "./delayed.ts"
import { neverDraining } from "../../support/service/defaultSettings.ts"

const delay = Effect.sync(() => {
  for (const end = performance.now() + 0.2; performance.now() < end;);
})

/** The service, 200 microseconds slower for some keys and credentials: the control of the timing. */
const delaying = Layer.merge(
  changing(ApiKeys, (apiKeys) => ({
    ...apiKeys,
    find: (hash) => Effect.tap(apiKeys.find(hash), isDelayed(hash) ? delay : Effect.void)
  })),
  changing(Credentials, (credentials) => ({
    ...credentials,
    get: (id) => Effect.ensuring(credentials.get(id), isDelayed(id) ? delay : Effect.void)
  }))
)

readSettings.pipe(
  Effect.flatMap((settings) =>
    Server.layer(settings).pipe(
      Layer.provide(delaying),
      Layer.provide([Byok.layerWith(settings), neverDraining]),
      Layer.launch
    )
  ),
  NodeRuntime.runMain
)
