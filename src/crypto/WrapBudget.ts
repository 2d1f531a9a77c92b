import { Context, Effect, Layer, Option, Semaphore } from "effect"
import { SealingRefused } from "../port/Cipher.ts"
import type { Answer } from "../port/DatabaseFailure.ts"
import { KekRegistry } from "../port/KekRegistry.ts"

/** The keys of a keyring, by id. */
type Keks = ReadonlyMap<string, unknown>

/** Limits the wraps of every KEK, across all instances, to the number of random nonces safe under one key. */
export class WrapBudget extends Context.Service<
  WrapBudget,
  {
    /**
     * Spends one wrap of a key, and reserves more in the registry when none is left. A reserved wrap is spent during
     * the call, before the effect runs. From `keks`, the keys of the keyring, the registry decides whether a new key
     * may seal.
     */
    readonly spend: (kek_id: string, keks: Keks) => Answer<void, SealingRefused>
  }
>()("byok/WrapBudget") {}

/** Warns above 2^31 wraps of a key, refuses above 2^32, and reserves `block` at a time, so most seals need no query. */
export const limits = { block: 4096, warn: 2 ** 31, refuse: 2 ** 32 }

/** The budget with these limits. Tests lower them. */
export const layerLimited = ({ block, refuse, warn }: typeof limits) =>
  Layer.effect(
    WrapBudget,
    Effect.gen(function* () {
      const registry = yield* KekRegistry
      const oneAtATime = yield* Semaphore.make(1)
      const reserved = new Map<string, number>()

      const takeReserved = (kek_id: string) => {
        const remaining = reserved.get(kek_id) ?? 0
        if (remaining > 0) reserved.set(kek_id, remaining - 1)
        return remaining > 0
      }

      const refill = Effect.fnUntraced(function* (kek_id: string, keks: Keks) {
        // The previous refill may have reserved enough.
        if (takeReserved(kek_id)) return
        const kek_ids = Array.from(keks.keys())
        const total = yield* registry.reserve(kek_id, kek_ids, block)
        if (Option.isNone(total)) {
          const reason = `neither key ${kek_id} nor another key of this keyring has ever sealed`
          const [missing] = yield* registry.countExcept(kek_ids, 1)
          const advice = missing === undefined ? "" : `: put key ${missing.kek_id} back`
          return yield* new SealingRefused({ reason: reason + advice })
        }
        const wraps = total.value
        if (wraps > refuse) {
          yield* Effect.logError(`Key ${kek_id} has reached its limit of ${refuse} wraps: rotate the keyring`)
          return yield* new SealingRefused({ reason: `key ${kek_id} has reached its limit of wraps` })
        }
        if (wraps > warn) yield* Effect.logWarning(`Key ${kek_id} has wrapped ${wraps} times: rotate the keyring`)
        // The caller spends the first wrap of the block.
        reserved.set(kek_id, block - 1)
      })

      return {
        spend: (kek_id, keks) => (takeReserved(kek_id) ? Effect.void : oneAtATime.withPermits(1)(refill(kek_id, keks)))
      }
    })
  )

export const layer = layerLimited(limits)
