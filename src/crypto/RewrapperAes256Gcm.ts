import { Effect, Layer, Result } from "effect"
import { encodeSealingContext } from "../domain/SealingContext.ts"
import { KeyStoreUnavailable, UnknownKeyId } from "../service/CipherErrors.ts"
import { Rewrapper } from "../service/Rewrapper.ts"
import { Keyring } from "./Keyring.ts"
import { rewrap } from "./SealingFormat1.ts"
import { WrapBudget } from "./WrapBudget.ts"

/** Wraps with sealing format 1 under the primary key of the keyring. */
export const layer = Layer.effect(
  Rewrapper,
  Effect.gen(function* () {
    const { byId, primary } = (yield* Keyring).current()
    const budget = yield* WrapBudget
    if (primary === undefined) return yield* new KeyStoreUnavailable({ reason: "the keyring is empty" })
    return {
      primary: primary.id,
      kek_ids: Array.from(byId.keys()),
      spend: (wraps) =>
        Effect.forEach(Array.from({ length: wraps }), () => budget.spend(primary.id), { discard: true }),
      rewrap: (sealed, context) => {
        const from = byId.get(sealed.kek_id)
        return from === undefined
          ? Result.fail(new UnknownKeyId({ kek_id: sealed.kek_id }))
          : rewrap(from, primary, sealed, Buffer.from(encodeSealingContext(context)))
      }
    }
  })
)
