import type { KekIdentity } from "../KeyEncryption.ts"

/** The first message to the token process: the token to open, and the keys to use on it, primary first. */
export interface TokenTarget {
  /** The path of the PKCS#11 module. */
  readonly module: string
  /** The label of the token. */
  readonly token: string
  readonly pin: string
  readonly kek_ids: ReadonlyArray<string>
}

/** The part of the target that is wrong, and what was expected instead. */
export interface TokenRefusal {
  readonly part: keyof TokenTarget
  readonly message: string
}

/**
 * A call of the token, with AES-256-GCM. To wrap, `input` is a data key and the output ciphertext | tag(16); to unwrap,
 * the reverse.
 */
export interface TokenRequest {
  readonly id: number
  readonly operation: "wrap" | "unwrap"
  readonly kek_id: string
  readonly nonce: Uint8Array
  readonly input: Uint8Array
  readonly aad: Uint8Array
  /** When the caller stops waiting, on the clock of `monotonicMillis`. */
  readonly expires: number
}

/** A message of the token process: the token is open, or cannot be; or the answer to the request with this `id`. */
export type TokenAnswer =
  | { readonly opened: ReadonlyArray<KekIdentity> }
  | { readonly refused: TokenRefusal }
  | { readonly unavailable: string }
  | { readonly id: number; readonly output: Uint8Array }
  | { readonly id: number; readonly failure: "AuthenticationFailed" }
  | { readonly id: number; readonly failure: "KeyStoreUnavailable"; readonly reason: string }

/** Views the bytes of a message as a buffer, without a copy. */
export const bytesOf = ({ buffer, byteLength, byteOffset }: Uint8Array): Buffer =>
  Buffer.from(buffer, byteOffset, byteLength)

/** Whether two lists, which must have the same length, have equal keys in the same order, by their check values. */
export const sameKeys = (keks: ReadonlyArray<KekIdentity>, others: ReadonlyArray<KekIdentity>): boolean =>
  keks.every((kek, index) => Buffer.compare(kek.check_value, others[index]?.check_value ?? Buffer.alloc(0)) === 0)

/** Milliseconds of a monotonic clock that all processes of the machine share. */
export const monotonicMillis = (): number => Number(process.hrtime.bigint() / 1_000_000n)
