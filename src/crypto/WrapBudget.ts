import { Context, Effect, Layer, Option, Semaphore } from "effect"
import type { ServiceUnavailable } from "../domain/Errors.ts"
import { KeyStoreUnavailable } from "../port/Cipher.ts"
import { KekRegistry } from "../port/KekRegistry.ts"
import type { KnownKek } from "./KeyEncryption.ts"

type Keks = () => ReadonlyArray<Pick<KnownKek, "kek_id">>

/** Limits every KEK to the number of random nonces that AES-GCM allows, across all instances. */
export class WrapBudget extends Context.Service<
  WrapBudget,
  {
    /**
     * Spends a wrap during the call, before the effect runs, if one is reserved. `keks` returns all keys of the store: the
     * registry decides from them whether a new key may seal.
     */
    readonly spend: (kek_id: string, keks: Keks) => Effect.Effect<void, KeyStoreUnavailable | ServiceUnavailable>
  }
>()("byok/WrapBudget") {}

/** Warns at 2^31 wraps of a key and refuses at 2^32. They are reserved `block` at a time, so most seals need no query. */
export const limits = { block: 4096, warn: 2 ** 31, refuse: 2 ** 32 }

export const layerLimited = ({ block, refuse, warn }: typeof limits) =>
  Layer.effect(
    WrapBudget,
    Effect.gen(function* () {
      const registry = yield* KekRegistry
      const oneAtATime = yield* Semaphore.make(1)
      const left = new Map<string, number>()

      const takeFrom = (kek_id: string) => {
        const remaining = left.get(kek_id) ?? 0
        if (remaining > 0) left.set(kek_id, remaining - 1)
        return remaining > 0
      }

      const refill = Effect.fnUntraced(function* (kek_id: string, keks: Keks) {
        if (takeFrom(kek_id)) return
        const kek_ids = keks().map(({ kek_id }) => kek_id)
        const total = yield* registry.reserve(kek_id, kek_ids, block)
        if (Option.isNone(total)) {
          const reason = `neither key ${kek_id} nor another key of this keyring has ever sealed`
          const [lost] = yield* registry.missing(kek_ids, 1)
          const cure = lost === undefined ? "" : `: put key ${lost.kek_id} back`
          return yield* new KeyStoreUnavailable({ reason: reason + cure })
        }
        const reserved = total.value
        if (reserved > refuse) {
          yield* Effect.logError(`Key ${kek_id} has reached its limit of ${refuse} wraps: rotate the keyring`)
          return yield* new KeyStoreUnavailable({ reason: `key ${kek_id} has reached its limit of wraps` })
        }
        if (reserved > warn) yield* Effect.logWarning(`Key ${kek_id} has wrapped ${reserved} times: rotate the keyring`)
        left.set(kek_id, block - 1)
      })

      return {
        spend: (kek_id, keks) => (takeFrom(kek_id) ? Effect.void : oneAtATime.withPermits(1)(refill(kek_id, keks)))
      }
    })
  )

export const layer = layerLimited(limits)
