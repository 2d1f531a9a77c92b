import { DateTime, Schema } from "effect"
import { type Credential, timeOrNull, timestamp } from "../Credential.ts"
import { type ParkedCause, parkedCauses } from "./Health.ts"
import { type LastUse, failureCauses, isFailing } from "./LastUse.ts"
import type { PooledCredential, Seal } from "./Pool.ts"

/**
 * The states by which a list can be filtered: all that are known without opening a key. If several apply, the last
 * counts.
 */
export const StoredState = Schema.Literals(["active", "failing", "parked", "disabled", "leaked"]).annotate({
  message: "must be active, failing, parked, disabled or leaked, given once"
})
export type StoredState = typeof StoredState.Type

/** Excludes a credential from routing, for a model or for all. Times are in milliseconds since 1970. */
export interface Parking {
  /** Null for every model. */
  readonly model: string | null
  readonly cause: ParkedCause
  readonly since: number
  /** Null if only replacing the key ends it. */
  readonly until: number | null
}

const NullableTime = (description: string) => Schema.NullOr(timestamp(description))

/** Whether routers use a credential and, if not, why. */
export const CredentialStatus = Schema.Struct({
  state: Schema.Literals([...StoredState.literals, "unreadable"]).annotate({
    description: [
      "`active`: routers may use it. `failing`: routers may use it, but the upstream refused the key when it was last tried,",
      "or refused the last ten requests.",
      "`parked`: the upstream refused the key, perhaps for some models only, and it is tried again later. `disabled`: its owner switched it off, or deleted its workspace. `leaked`: its key is known to have leaked and is not used until it",
      "is replaced. `unreadable`: its key cannot be opened; the operator knows more."
    ].join("\n")
  }),
  parked: Schema.Array(
    Schema.Struct({
      model: Schema.NullOr(Schema.String).annotate({ description: "Not used for this model; null for every model." }),
      cause: Schema.Literals(parkedCauses),
      since: timestamp("When the upstream last refused the key, or when it was marked as leaked."),
      until: NullableTime("When it is tried again; null if not before its key is replaced.")
    })
  ),
  last_leased_at: NullableTime("When a router last took the key; null if never. Times may be ten seconds late."),
  last_succeeded_at: NullableTime("When the upstream last accepted the key."),
  last_failed_at: NullableTime("When an attempt with the key last failed."),
  last_failure: Schema.NullOr(Schema.Literals(failureCauses)).annotate({ description: "Why it failed then." }),
  last_refused_at: NullableTime("When the upstream last refused a request without blaming the key."),
  last_refused_status: Schema.NullOr(Schema.Int).annotate({ description: "The upstream's status then." }),
  last_refused_code: Schema.NullOr(Schema.String).annotate({
    description: "The code of the upstream's error then, if it has a plain one."
  })
}).annotate({ identifier: "CredentialStatus" })
export type CredentialStatus = typeof CredentialStatus.Type

const unreadableSeals: ReadonlySet<Seal> = new Set(["altered", "unknown_key", "unsupported"])

/** The state of a credential. `parkings` are those in force for its current key; one of any model counts as parked. */
export const stateOf = (
  { disabled }: Pick<Credential, "disabled">,
  seal: Seal,
  parkings: ReadonlyArray<Parking>,
  failing: boolean
): CredentialStatus["state"] => {
  if (unreadableSeals.has(seal)) return "unreadable"
  if (parkings.some(({ cause }) => cause === "leaked")) return "leaked"
  if (disabled) return "disabled"
  return parkings.length > 0 ? "parked" : failing ? "failing" : "active"
}

/** The status of a credential. `pooled` is undefined if its workspace is deleted. */
export const statusOf = (
  credential: Credential,
  pooled: Pick<PooledCredential, "seal" | "key_version"> | undefined,
  parkings: ReadonlyArray<Parking>,
  lastUse: LastUse
): CredentialStatus => ({
  state: stateOf(
    { disabled: credential.disabled || pooled === undefined },
    pooled?.seal ?? "verified",
    parkings,
    pooled !== undefined && isFailing(lastUse, pooled.key_version)
  ),
  parked: parkings.map(({ since, until, ...parking }) => ({
    ...parking,
    since: DateTime.makeUnsafe(since),
    until: timeOrNull(until)
  })),
  last_leased_at: timeOrNull(lastUse.last_leased_at),
  last_succeeded_at: timeOrNull(lastUse.last_succeeded_at),
  last_failed_at: timeOrNull(lastUse.last_failed_at),
  last_failure: lastUse.last_failure,
  last_refused_at: timeOrNull(lastUse.last_refused_at),
  last_refused_status: lastUse.last_refused_status,
  last_refused_code: lastUse.last_refused_code
})
