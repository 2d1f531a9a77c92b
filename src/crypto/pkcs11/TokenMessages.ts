import type { KnownKek } from "../KeyEncryption.ts"

/** The token to open and the keys to use on it, primary first. */
export interface TokenTarget {
  readonly module: string
  readonly token: string
  readonly pin: string
  readonly kek_ids: ReadonlyArray<string>
}

/** The refused part of the target, and the expectation. */
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
  /** When the caller stops waiting, in milliseconds of `monotonicMillis`. */
  readonly expires: number
}

export type TokenAnswer =
  | { readonly opened: ReadonlyArray<KnownKek> }
  | { readonly refused: TokenRefusal }
  | { readonly unavailable: string }
  | { readonly id: number; readonly output: Uint8Array }
  | { readonly id: number; readonly failure: "AuthenticationFailed" }
  | { readonly id: number; readonly failure: "KeyStoreUnavailable"; readonly reason: string }

/** Views the bytes of a message as a buffer, without a copy. */
export const bytesOf = ({ buffer, byteLength, byteOffset }: Uint8Array): Buffer =>
  Buffer.from(buffer, byteOffset, byteLength)

/** Whether two lists of keys have the same check values. */
export const sameKeys = (keks: ReadonlyArray<KnownKek>, others: ReadonlyArray<KnownKek>): boolean =>
  keks.every((kek, index) => Buffer.compare(kek.check_value, others[index]?.check_value ?? Buffer.alloc(0)) === 0)

/** Milliseconds of a monotonic clock that all processes of the machine share. */
export const monotonicMillis = (): number => Number(process.hrtime.bigint() / 1_000_000n)
