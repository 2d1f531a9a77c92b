import { Effect, Layer, Redacted } from "effect"
import { encodeSealingContext } from "../domain/SealingContext.ts"
import { Cipher } from "../port/Cipher.ts"
import { KeyStoreUnavailable } from "../port/CipherErrors.ts"
import { KeyEncryption } from "./KeyEncryption.ts"
import { open, seal } from "./SealingFormat1.ts"
import { WrapBudget } from "./WrapBudget.ts"

/** Seals with sealing format 1 under the primary key of the key store, and opens with the key that a row names. */
export const layer = Layer.effect(
  Cipher,
  Effect.gen(function* () {
    const keys = yield* KeyEncryption
    const budget = yield* WrapBudget
    return {
      seal: Effect.fnUntraced(function* (key, context) {
        const primary = keys.primary()
        if (primary === undefined) return yield* new KeyStoreUnavailable({ reason: "the keyring is empty" })
        yield* budget.spend(primary, keys.keks)
        const plaintext = Buffer.from(Redacted.value(key))
        const sealed = seal(keys, primary, plaintext, Buffer.from(encodeSealingContext(context))).pipe(
          Effect.ensuring(Effect.sync(() => plaintext.fill(0)))
        )
        return yield* Effect.catchTag(sealed, "UnknownKeyId", ({ kek_id }) =>
          Effect.fail(new KeyStoreUnavailable({ reason: `key ${kek_id} is no longer available` }))
        )
      }),
      open: (sealed, context) =>
        Effect.map(open(keys, sealed, Buffer.from(encodeSealingContext(context))), (opened) => {
          const key = Redacted.make(opened.toString("utf8"))
          opened.fill(0)
          return key
        })
    }
  })
)
