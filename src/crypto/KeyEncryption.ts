import { Context, Effect, Exit, Fiber } from "effect"
import { type AuthenticationFailed, KeyStoreUnavailable, type UnknownKeyId } from "../port/Cipher.ts"
import { timeLeft } from "../runtime/Deadline.ts"
import type { RequestQueue } from "../runtime/FairQueue.ts"
import { onEnd } from "../runtime/onEnd.ts"

/** Identifies a key-encryption key: two keys with the same id and the same check value have the same bytes. */
export interface KekIdentity {
  readonly kek_id: string
  readonly check_value: Uint8Array
}

/** A store of key-encryption keys (KEKs). Wraps data keys (DEKs) and never returns a KEK. */
export class KeyEncryption extends Context.Service<
  KeyEncryption,
  {
    /** The id of the key that wraps new data keys; undefined if the store is empty. */
    readonly primary: () => string | undefined
    readonly keks: () => ReadonlyArray<KekIdentity>
    /**
     * Encrypts a data key with AES-256-GCM under a new random nonce. Returns nonce(12) | ciphertext | tag(16). A store
     * in this process wraps during the call, before the effect runs.
     */
    readonly wrap: (
      kek_id: string,
      dek: Uint8Array,
      aad: Uint8Array
    ) => Effect.Effect<Uint8Array, UnknownKeyId | KeyStoreUnavailable>
    /**
     * Returns the data key in a buffer that the caller must wipe. A store in this process unwraps during the call,
     * before the effect runs; another one wipes the key if the caller was interrupted meanwhile.
     */
    readonly unwrap: (
      kek_id: string,
      wrapped_dek: Uint8Array,
      aad: Uint8Array
    ) => Effect.Effect<Buffer, UnknownKeyId | AuthenticationFailed | KeyStoreUnavailable>
    /** Where `inTurn` makes calls wait; undefined if the store serves any number of calls at a time. */
    readonly queue?: RequestQueue
  }
>()("byok/KeyEncryption") {}

type Keys = KeyEncryption["Service"]

const tooMany = () => Effect.fail(new KeyStoreUnavailable({ reason: "too many calls are waiting for it" }))

/** Returns `wrap` and `unwrap` that wait for the account's turn in the store's queue, if the store has one. */
export const inTurn = (keys: Keys, account_id: string): Pick<Keys, "wrap" | "unwrap"> => {
  const { queue, unwrap, wrap } = keys
  if (queue === undefined) return keys
  /** Suspends the call: `unwrap` of a store in this process would return a key that nobody wipes if the wait fails. */
  const wait = <A, E>(call: () => Effect.Effect<A, E>) =>
    Effect.catchTag(queue(account_id, Effect.suspend(call)), "ServiceUnavailable", tooMany)
  return { wrap: (...args) => wait(() => wrap(...args)), unwrap: (...args) => wait(() => unwrap(...args)) }
}

/**
 * Combines two stores while credentials move from the second to the first, which has the primary key and the queue. A
 * KEK in both is used from the first.
 */
export const makeUnion = (first: Keys, second: Keys): Keys => {
  const storeOf = (kek_id: string) => (first.keks().some((kek) => kek.kek_id === kek_id) ? first : second)
  return {
    ...first,
    keks: () => [...first.keks(), ...second.keks()],
    wrap: (kek_id, dek, aad) => storeOf(kek_id).wrap(kek_id, dek, aad),
    unwrap: (kek_id, wrapped_dek, aad) => storeOf(kek_id).unwrap(kek_id, wrapped_dek, aad)
  }
}

/** Fails a call after 3 seconds or at the request's deadline. Starts neither fiber nor timer if the call has ended. */
export const withKeyStoreTimeout = <A, E>(call: Effect.Effect<A, E>): Effect.Effect<A, E | KeyStoreUnavailable> =>
  Exit.isExit(call)
    ? call
    : Effect.flatMap(Effect.forkChild(call, { startImmediately: true }), (fiber) => {
        const exit = fiber.pollUnsafe()
        if (exit !== undefined) return exit
        const answer = Effect.flatMap(timeLeft(3000), (duration) =>
          Effect.timeoutOrElse(Fiber.join(fiber), {
            duration,
            orElse: () => Effect.fail(new KeyStoreUnavailable({ reason: "it does not answer" }))
          })
        )
        return onEnd(answer, () => fiber.interruptUnsafe())
      })
