import type { CredentialId } from "../Identifiers.ts"
import type { Provider } from "../Provider.ts"
import type { Region } from "../Region.ts"
import type { ParkedCause } from "./Health.ts"
import type { UntrustedSeal } from "./Pool.ts"

/** Whether a credential is tried before the provider's shared endpoint, or after it (E1). */
export const sections = ["prioritized", "fallback"] as const
export type Section = (typeof sections)[number]

/** Every reason why a credential is not used. */
export const exclusionReasons = [
  "disabled",
  "api_key_not_allowed",
  "user_not_allowed",
  "no_token",
  "model_not_allowed",
  "region",
  "zdr",
  "seal",
  "parked"
] as const

/** Why a credential is not used. `until` is in milliseconds since 1970; null without an end. */
export type Exclusion =
  | { readonly reason: Exclude<(typeof exclusionReasons)[number], "region" | "zdr" | "seal" | "parked"> }
  | { readonly reason: "region"; readonly declared: Region | null; readonly host: Region }
  | { readonly reason: "zdr"; readonly declared: boolean | null }
  | { readonly reason: "seal"; readonly seal: UntrustedSeal }
  | { readonly reason: "parked"; readonly cause: ParkedCause; readonly until: number | null }

/** Why a provider's shared endpoint is not used. */
export type SharedReason =
  | { readonly reason: "none_there" | "region" | "zdr" }
  | { readonly reason: "is_required" | "is_byok_only"; readonly credential_id: CredentialId }
  | { readonly reason: "seal"; readonly credential_id: CredentialId; readonly seal: UntrustedSeal }

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
  | SharedStep
export interface SharedStep {
  readonly _tag: "Shared"
  readonly provider: Provider
}

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
