import type { CredentialId } from "../Identifiers.ts"
import type { Provider } from "../Provider.ts"
import type { Region } from "../Region.ts"
import type { Excluded, Removed } from "./Explanation.ts"

/** Whether a credential is tried before the provider's shared endpoint, or after it (E1). */
export type Section = "prioritized" | "fallback"

/** A reason without its sentence and hint, and with `until` in milliseconds since 1970. */
type WithoutMessage<Reason> = Reason extends { readonly until: unknown }
  ? Omit<Reason, "message" | "until"> & { readonly until: number | null }
  : Omit<Reason, "message" | "hint">

/** Why a credential is not used. */
export type Exclusion = WithoutMessage<Excluded>
/** Why a provider's shared endpoint is not used. */
export type SharedReason = WithoutMessage<Removed>

/**
 * One attempt, with a credential's key or on the shared endpoint. `region` is the one that the credential declares; the
 * upstream's address may depend on it (E12). `row` is the version of the credential's row.
 */
export type Step =
  | {
      readonly _tag: "Own"
      readonly provider: Provider
      readonly section: Section
      readonly credential_id: CredentialId
      readonly key_version: number
      readonly row: string
      readonly region: Exclude<Region, "global"> | null
      readonly on_trial: boolean
    }
  | { readonly _tag: "Shared"; readonly provider: Provider }

/** A step that uses a credential's key. */
export type OwnStep = Extract<Step, { readonly _tag: "Own" }>

/** Verdicts on a provider's credentials and shared endpoint: the index in `steps`, or every reason against using it. */
export interface ProviderPlan {
  readonly provider: Provider
  readonly credentials: ReadonlyArray<{
    readonly credential_id: CredentialId
    readonly section: Section
    readonly position: number | null
    readonly exclusions: ReadonlyArray<Exclusion>
  }>
  readonly shared: { readonly position: number | null; readonly removed: ReadonlyArray<SharedReason> }
}

/** The attempts for a request in order, and the reasons against all others. */
export interface Plan {
  readonly steps: ReadonlyArray<Step>
  readonly providers: ReadonlyArray<ProviderPlan>
  /** Earliest end of a parking that is a credential's only exclusion; null if there is a step or no such parking. */
  readonly retry_at: number | null
}
