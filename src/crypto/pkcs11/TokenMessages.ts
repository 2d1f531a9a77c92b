import type { KnownKek } from "../KeyEncryption.ts"

/** Where the token is and which of its keys are wanted, the primary key first. */
export interface TokenTarget {
  readonly module: string
  readonly token: string
  readonly pin: string
  readonly kek_ids: ReadonlyArray<string>
}

/** What of the target the token does not accept, and how it should be. */
export interface TokenRefusal {
  readonly part: keyof TokenTarget
  readonly message: string
}

export interface TokenRequest {
  readonly id: number
  readonly operation: "wrap" | "unwrap"
  readonly kek_id: string
  readonly nonce: Uint8Array
  readonly input: Uint8Array
  readonly aad: Uint8Array
  /** In milliseconds since 1970; after that nobody waits for the answer. */
  readonly expires: number
}

export type TokenAnswer =
  | { readonly opened: ReadonlyArray<KnownKek> }
  | { readonly refused: TokenRefusal }
  | { readonly unavailable: string }
  | { readonly id: number; readonly output: Uint8Array }
  | { readonly id: number; readonly failure: "AuthenticationFailed" }
  | { readonly id: number; readonly failure: "KeyStoreUnavailable"; readonly reason: string }
