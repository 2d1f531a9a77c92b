import { Effect, Layer, Redacted, Result } from "effect"
import { encodeSealingContext } from "../domain/SealingContext.ts"
import { Cipher } from "../service/Cipher.ts"
import { KeyStoreUnavailable, UnknownKeyId } from "../service/CipherErrors.ts"
import { Keyring } from "./Keyring.ts"
import { open, seal } from "./SealingFormat1.ts"
import { WrapBudget } from "./WrapBudget.ts"

/** Seals with sealing format 1 under the primary key of the keyring, and opens under the one key that a row names. */
export const layer = Layer.effect(
  Cipher,
  Effect.gen(function* () {
    const keyring = yield* Keyring
    const budget = yield* WrapBudget
    return {
      seal: Effect.fnUntraced(function* (key, context) {
        const { primary } = keyring.current()
        if (primary === undefined) return yield* new KeyStoreUnavailable({ reason: "the keyring is empty" })
        yield* budget.spend(primary.id)
        const plaintext = Buffer.from(Redacted.value(key))
        const sealed = seal(primary, plaintext, Buffer.from(encodeSealingContext(context)))
        plaintext.fill(0)
        return sealed
      }),
      open: Effect.fnUntraced(function* (sealed, context) {
        const kek = keyring.current().byId.get(sealed.kek_id)
        if (kek === undefined) return yield* new UnknownKeyId({ kek_id: sealed.kek_id })
        const opened = open(kek, sealed, Buffer.from(encodeSealingContext(context)))
        if (Result.isFailure(opened)) return yield* opened.failure
        const key = Redacted.make(opened.success.toString("utf8"))
        opened.success.fill(0)
        return key
      })
    }
  })
)
