import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import { Context, Effect, Layer } from "effect"
import * as Byok from "../../../src/Byok.ts"
import * as Server from "../../../src/http/Server.ts"
import { ApiKeys } from "../../../src/port/ApiKeys.ts"
import { Credentials } from "../../../src/port/Credentials.ts"
import { readSettings } from "../../../src/wiring/Settings.ts"
import { isDelayed } from "./delayed.ts"

const delay = Effect.sync(() => {
  for (const end = performance.now() + 0.2; performance.now() < end;);
})

type Parts = Layer.Success<ReturnType<typeof Byok.layerWith>>

/** The service, 200 microseconds slower for some keys and credentials: the control of the timing. */
const delaying = Layer.effectContext(
  Effect.map(Effect.context<Parts>(), (parts) => {
    const apiKeys = Context.get(parts, ApiKeys)
    const credentials = Context.get(parts, Credentials)
    return parts.pipe(
      Context.add(ApiKeys, {
        ...apiKeys,
        find: (hash) => Effect.tap(apiKeys.find(hash), isDelayed(hash) ? delay : Effect.void)
      }),
      Context.add(Credentials, {
        ...credentials,
        get: (id) => Effect.ensuring(credentials.get(id), isDelayed(id) ? delay : Effect.void)
      })
    )
  })
)

readSettings.pipe(
  Effect.flatMap((settings) =>
    Server.layer(settings).pipe(Layer.provide(delaying), Layer.provide(Byok.layerWith(settings)), Layer.launch)
  ),
  NodeRuntime.runMain
)
