import type { Credential } from "../Credential.ts"
import type { ParkedCause } from "./Health.ts"
import type { Seal } from "./Pool.ts"

/** Whether routers are offered a credential. Of several reasons why not, the one that comes later here. */
export const credentialStates = ["active", "parked", "disabled", "leaked", "unreadable"] as const
export type CredentialState = (typeof credentialStates)[number]

/** What withholds a credential from routers now. Times are in milliseconds since 1970. */
export interface Withheld {
  /** Null for every model. */
  readonly model: string | null
  readonly cause: ParkedCause
  readonly since: number
  /** Null if only another key ends it. */
  readonly until: number | null
}

const unreadable: ReadonlySet<Seal> = new Set(["altered", "unknown_key", "unsupported"])

/** A credential is parked if any model is. `withheld` is of its current key. */
export const stateOf = (
  { disabled }: Pick<Credential, "disabled">,
  seal: Seal,
  withheld: ReadonlyArray<Withheld>
): CredentialState => {
  if (unreadable.has(seal)) return "unreadable"
  if (withheld.some(({ cause }) => cause === "leaked")) return "leaked"
  if (disabled) return "disabled"
  return withheld.length > 0 ? "parked" : "active"
}
