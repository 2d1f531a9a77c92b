import { Context, Schema } from "effect"
import { ApiKeyHash } from "./ApiKeyHash.ts"

/** Who acts: a management key over HTTP, the gateway in process, a person at the command line, or the service by itself. */
export const Actor = Schema.Union([
  Schema.Struct({ kind: Schema.Literal("api_key"), api_key_hash: ApiKeyHash }),
  Schema.Struct({ kind: Schema.Literal("in_process") }),
  Schema.Struct({ kind: Schema.Literal("cli"), user: Schema.optionalKey(Schema.String) }),
  Schema.Struct({ kind: Schema.Literal("service") })
])
export type Actor = typeof Actor.Type

/** The actor of what is done now; the service itself where nobody else is named. */
export const CurrentActor = Context.Reference<Actor>("byok/CurrentActor", {
  defaultValue: () => ({ kind: "service" })
})
