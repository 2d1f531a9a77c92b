import { Effect, Schema, Struct } from "effect"
import { AccountId, ApiKeyHash, CredentialId, WorkspaceId } from "../Identifiers.ts"
import { RequestedProvider, Provider } from "../Provider.ts"
import { Region } from "../Region.ts"
import { closed, NonEmptyShortText, ShortText, withDefault, precheckLength } from "../checkInput.ts"

/** The kind of an endpoint: decides which declarations of a credential it honours (section 4.1, `declared_region`). */
export const EndpointKind = Schema.Literals(["standard", "private", "pinned", "cross_region", "video"]).annotate({
  message: "must be standard, private, pinned, cross_region or video"
})
export type EndpointKind = typeof EndpointKind.Type

/** A boolean member that a request may omit. */
export const flag = (defaultValue: boolean, description: string) =>
  withDefault(Schema.Boolean.annotate({ message: "must be true or false", description, default: defaultValue }))

/** Maximum `freshness` of a plan, in milliseconds: how old the pools that it uses may be. */
export const longestFreshness = 600_000

/** A provider's endpoint for the requested model, as the gateway describes it. */
export const Endpoint = Schema.Struct({
  kind: withDefault(EndpointKind.annotate({ description: "Kind of endpoint.", default: "standard" })),
  region: Schema.NullOr(Region)
    .annotate({
      message: "must be global, europe, us or null",
      description: "Recorded region; null or global for none in particular.",
      default: null
    })
    .pipe(withDefault),
  zdr: flag(false, "Whether the endpoint retains nothing of a request."),
  shared: flag(true, "Whether the gateway has capacity of its own there.")
})
export type Endpoint = typeof Endpoint.Type

/** An endpoint at which the gateway has no capacity of its own. */
export const ownKeysOnly: Endpoint = { kind: "standard", region: null, zdr: false, shared: false }

/** A provider that serves the model, and its endpoint. */
const Target = Schema.Struct({
  provider: RequestedProvider,
  endpoint: Endpoint.annotate({ message: "must be an object" }).pipe(Schema.withDecodingDefaultKey(Effect.succeed({})))
}).annotate({ message: "must be an object" })

/** A member that is null or omitted if the caller has no such value. */
const orNull = <S extends Schema.Constraint>(schema: S, description: string) =>
  withDefault(Schema.NullOr(schema).annotate({ message: "must be a string or null", description, default: null }))

const maxTargets = Provider.literals.length
const tooLong = `must have at most ${maxTargets} elements`

const targets = Schema.Array(Target)
  .annotate({ message: "must be a list of objects" })
  .check(
    Schema.isMinLength(1, { message: "must have at least 1 element" }),
    Schema.isMaxLength(maxTargets, { message: tooLong }),
    Schema.makeFilter((targets) => new Set(targets.map(({ provider }) => provider)).size === targets.length, {
      message: "must name each provider once"
    })
  )
  .pipe(precheckLength(maxTargets, tooLong))

export const Strategy = Schema.Literals(["byok_first", "provider_first"]).annotate({
  message: "must be byok_first or provider_first",
  description: "Whether every provider's own keys precede shared capacity, or providers are tried one by one.",
  default: "byok_first"
})

/** The form in which routers hand out keys (D58). */
const KeyForm = Schema.Literals(["as_stored", "tokens"]).annotate({
  message: "must be as_stored or tokens",
  description:
    "`tokens`: a short-lived token wherever the stored key can sign one. The default is tokens with TOKENS_ONLY, else as_stored."
})

export const routingFields = {
  account_id: AccountId,
  workspace_id: Schema.optionalKey(WorkspaceId),
  credential_id: Schema.optionalKey(
    CredentialId.annotate({ description: "This credential alone, parked or not, and no shared capacity." })
  ),
  model: NonEmptyShortText.annotate({ description: "Model slug, compared verbatim." }),
  api_key_hash: orNull(ApiKeyHash, "SHA-256 of the caller's API key; null without one."),
  user_id: orNull(ShortText, "The caller's user id; null without one."),
  host: Region.annotate({
    message: "must be global, europe or us",
    description: "Regional host that the request came to.",
    default: "global"
  }).pipe(withDefault),
  requires_zdr: flag(false, "Whether the request requires zero data retention."),
  targets,
  strategy: withDefault(Strategy),
  keys: Schema.optionalKey(KeyForm)
}

/** A caller's request to a gateway, in the default workspace unless one is named. Refuses undeclared members. */
export const RoutingRequest = closed(Schema.Struct(routingFields))
export type RoutingRequest = typeof RoutingRequest.Type

/** The input of `plan`, with which an account asks how a gateway would route a request. */
export const PlanRequest = closed(
  Schema.Struct(Struct.omit(routingFields, ["account_id", "credential_id", "keys"]))
).annotate({
  identifier: "PlanRequest"
})
export type PlanRequest = typeof PlanRequest.Type
