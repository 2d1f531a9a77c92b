import { Context, Effect, Option, Schema } from "effect"
import { type AccountId, ApiKeyHash, LinkId } from "./Identifiers.ts"
import type { Link, LinkKeyPair, Purpose } from "./Link.ts"

/** What an API key permits (D51). */
export const ApiKeyRole = Schema.Literals(["management", "viewer", "ordinary"]).annotate({
  message: "must be management, viewer or ordinary"
})
export type ApiKeyRole = typeof ApiKeyRole.Type

/** The author of an audit event. */
export const Actor = Schema.Union([
  Schema.Struct({ kind: Schema.Literal("api_key"), api_key_hash: ApiKeyHash }),
  Schema.Struct({ kind: Schema.Literal("link"), link_id: LinkId }),
  Schema.Struct({ kind: Schema.Literal("in_process") }),
  Schema.Struct({ kind: Schema.Literal("gateway") }),
  Schema.Struct({ kind: Schema.Literal("cli"), user: Schema.optionalKey(Schema.String) }),
  Schema.Struct({ kind: Schema.Literal("service") })
])
export type Actor = typeof Actor.Type
export const actorKinds = Actor.members.map(({ fields }) => fields.kind.literal)

/** The owner of provider keys, authenticated by a link. `hash` is its token's; `keys` is null for `view`. */
export interface LinkPrincipal extends Link {
  readonly kind: "link"
  readonly hash: ApiKeyHash
  readonly keys: LinkKeyPair | null
}

/** A trusted caller: code in this process, a gateway at the socket, the command line or the service itself. */
interface Trusted {
  readonly kind: "in_process" | "gateway" | "cli" | "service"
  readonly account_id?: AccountId
  /** The operating system's user at the command line. */
  readonly user?: string
}

interface ApiKeyPrincipal {
  readonly kind: "api_key"
  readonly account_id: AccountId
  readonly api_key_hash: ApiKeyHash
  readonly role: ApiKeyRole
}

/** The authenticated caller. */
export type Principal = ApiKeyPrincipal | LinkPrincipal | Trusted

const reading = ["get", "list", "status", "plan", "events"] as const
const writing = ["create", "update", "order", "delete"] as const
/** Names of endpoints, and `route`, which hands out a provider key. The last three are for the owner's page only. */
const allOperations = [...reading, ...writing, "route", "about", "replaceToken", "apiKeys"] as const

export type Operation = (typeof allOperations)[number]

const operationsByRole = {
  management: [...reading, ...writing],
  viewer: reading,
  ordinary: ["route"],
  connect: ["about", "create"],
  replace: ["about", "get", "update"],
  manage: ["about", "replaceToken", "apiKeys", ...reading, ...writing],
  view: ["about", "replaceToken", "apiKeys", ...reading],
  in_process: allOperations,
  gateway: allOperations,
  cli: [...reading, ...writing],
  service: []
} as const satisfies Record<ApiKeyRole | Purpose | Trusted["kind"], ReadonlyArray<Operation>>

/**
 * What decides which operations a caller may perform: an API key's role, a link's purpose or the kind of a trusted
 * caller.
 */
export type Role = keyof typeof operationsByRole

/** Whether a role allows an operation. No role allows an unknown one. */
export const roleAllows = (role: Role, operation: string): boolean =>
  (operationsByRole[role] as ReadonlyArray<string>).includes(operation)

const roleOf = (principal: Principal): Role => {
  if (principal.kind === "api_key") return principal.role
  return principal.kind === "link" ? principal.purpose : principal.kind
}

export const isAllowed = (principal: Principal, operation: string) => roleAllows(roleOf(principal), operation)

/**
 * Acts for the account of the current principal. Dies if its role does not allow the operation: a caller over HTTP was
 * refused before, by the same table.
 */
export const ifAllowed = <A, E, R>(
  operation: Operation,
  act: (account_id: AccountId) => Effect.Effect<A, E, R>
): Effect.Effect<A, E, R | CurrentPrincipal> =>
  Effect.flatMap(CurrentPrincipal, (principal): Effect.Effect<A, E, R> =>
    isAllowed(principal, operation)
      ? act(accountOf(principal))
      : Effect.die(new Error(`This principal may not call ${operation}`))
  )

export const actorOf = (principal: Principal): Actor => {
  switch (principal.kind) {
    case "api_key":
      return { kind: "api_key", api_key_hash: principal.api_key_hash }
    case "link":
      return { kind: "link", link_id: principal.link_id }
    case "cli":
      return principal.user === undefined ? { kind: "cli" } : { kind: "cli", user: principal.user }
    default:
      return { kind: principal.kind }
  }
}

export class CurrentPrincipal extends Context.Service<CurrentPrincipal, Principal>()("byok/CurrentPrincipal") {}

const service: Principal = { kind: "service" }

/** The current principal, or the service itself if there is none: outside requests. */
export const actingPrincipal = Effect.map(
  Effect.serviceOption(CurrentPrincipal),
  Option.getOrElse(() => service)
)

/** The account of the principal; throws if it has none. */
export const accountOf = ({ account_id }: Principal): AccountId => {
  if (account_id === undefined) throw new Error("The principal acts in no account")
  return account_id
}
