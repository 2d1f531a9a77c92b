import { Context, Schema } from "effect"
import { type AccountId, ApiKeyHash, LinkId } from "./Identifiers.ts"

/** The account that a request acts for and, over HTTP, the API key that sent it. Provided per request. */
export class CurrentCaller extends Context.Service<
  CurrentCaller,
  { readonly account_id: AccountId; readonly api_key_hash?: ApiKeyHash }
>()("byok/CurrentCaller") {}

/** Who acts: a management key over HTTP, the owner with a link, the gateway in process or over its socket, an operator, or the service. */
export const Actor = Schema.Union([
  Schema.Struct({ kind: Schema.Literal("api_key"), api_key_hash: ApiKeyHash }),
  Schema.Struct({ kind: Schema.Literal("link"), link_id: LinkId }),
  Schema.Struct({ kind: Schema.Literal("in_process") }),
  Schema.Struct({ kind: Schema.Literal("gateway") }),
  Schema.Struct({ kind: Schema.Literal("cli"), user: Schema.optionalKey(Schema.String) }),
  Schema.Struct({ kind: Schema.Literal("service") })
])
export type Actor = typeof Actor.Type
export const actorKinds = [
  "api_key",
  "link",
  "in_process",
  "gateway",
  "cli",
  "service"
] as const satisfies ReadonlyArray<Actor["kind"]>

/** The actor of the current operation; the service itself by default. */
export const CurrentActor = Context.Reference<Actor>("byok/CurrentActor", {
  defaultValue: () => ({ kind: "service" })
})
