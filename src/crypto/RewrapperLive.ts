import { Effect, Layer, Result } from "effect"
import { encodeSealingContext } from "../domain/SealedKey.ts"
import { KeyStoreUnavailable, type RewrapFailure } from "../port/Cipher.ts"
import { Rewrapper } from "../port/KekRegistry.ts"
import { inTurn, KeyEncryption } from "./KeyEncryption.ts"
import { makeCryptoTimer } from "./CipherLive.ts"
import { rewrap } from "./SealingFormat1.ts"
import { WrapBudget } from "./WrapBudget.ts"

const refused = (failure: RewrapFailure) => Effect.succeed(Result.fail(failure))

/** Rewraps with sealing format 1 under the primary key of the key store. */
export const layer = Layer.effect(
  Rewrapper,
  Effect.gen(function* () {
    const keys = yield* KeyEncryption
    const budget = yield* WrapBudget
    const rewrapping = (yield* makeCryptoTimer)("rewrap")
    const primary = keys.primary()
    if (primary === undefined) return yield* new KeyStoreUnavailable({ reason: "the keyring is empty" })
    return {
      primary,
      kek_ids: keys.keks().map(({ kek_id }) => kek_id),
      spend: (wraps) =>
        Effect.forEach(Array.from({ length: wraps }), () => budget.spend(primary, keys.keks), { discard: true }).pipe(
          Effect.catchTag("ServiceUnavailable", Effect.die)
        ),
      rewrap: (sealed, context) =>
        rewrap(inTurn(keys, context.account_id), primary, sealed, Buffer.from(encodeSealingContext(context))).pipe(
          rewrapping,
          Effect.map(Result.succeed),
          Effect.catchTags({ AuthenticationFailed: refused, UnknownKeyId: refused, UnsupportedFormat: refused })
        )
    }
  })
)
