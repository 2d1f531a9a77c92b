import { Context, Effect, Layer } from "effect"
import { makeKeyScan, type ScanProgress } from "./scanKeys.ts"

/** Opens every stored key and shows none, for instance after a restore: whether the keyring and the rows fit. */
export class KeyCheck extends Context.Service<KeyCheck>()("byok/KeyCheck", {
  make: Effect.gen(function* () {
    const scanKeys = yield* makeKeyScan
    return {
      openAll: (onProgress: (progress: ScanProgress) => Effect.Effect<void> = () => Effect.void) =>
        scanKeys(undefined, () => {}, onProgress)
    }
  })
}) {
  static readonly layer = Layer.effect(this, this.make)
}
