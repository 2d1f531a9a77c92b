import { createServer } from "node:http"
import * as NodeHttpServer from "@effect/platform-node/NodeHttpServer"
import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import { Config, Console, Effect, Layer, Schema } from "effect"
import { HttpRouter, HttpServer } from "effect/http"
import { gateway } from "../../examples/gateway.ts"
import * as Byok from "../../src/wiring/Byok.ts"
import { AccountId, WorkspaceId } from "../../src/domain/Identifiers.ts"

const Given = Schema.fromJsonString(
  Schema.Struct({ account_id: AccountId, workspace_id: WorkspaceId, upstream: Schema.String })
)

/** The example of a gateway as a process of its own, for the customer in `GATEWAY`. */
const program = Effect.gen(function* () {
  const given = Schema.decodeUnknownSync(Given)(yield* Config.String("GATEWAY"))
  const announced = Layer.effectDiscard(
    Effect.flatMap(HttpServer.HttpServer, ({ address }) =>
      Console.log(`byok listens on ${HttpServer.formatAddress(address)}, as a gateway`)
    )
  )
  const server = NodeHttpServer.layer(createServer, { host: "127.0.0.1", port: 0, gracefulShutdownTimeout: 0 })
  const routes = HttpRouter.serve(gateway({ ...given, shared: undefined }), {
    disableLogger: true,
    disableListenLog: true
  })
  return yield* Layer.launch(Layer.merge(routes, announced).pipe(Layer.provide(server), Layer.provide(Byok.layer)))
})

NodeRuntime.runMain(program)
