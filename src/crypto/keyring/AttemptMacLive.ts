import { createHmac, createSecretKey, hkdfSync, type KeyObject } from "node:crypto"
import { Effect, Layer } from "effect"
import { AttemptMac, macLength } from "../../port/AttemptMac.ts"
import { type Kek, Keyring } from "./Keyring.ts"

const derivedFrom = ({ key }: Kek): KeyObject => {
  const bytes = new Uint8Array(hkdfSync("sha256", key, "", "byok/attempts", 32))
  const derived = createSecretKey(bytes)
  bytes.fill(0)
  return derived
}

/** Authenticates with HMAC-SHA-256, cut to 128 bits, under keys that HKDF derives from the KEKs of the keyring. */
export const layer = Layer.effect(
  AttemptMac,
  Effect.map(Keyring, ({ current }) => {
    const derived = new WeakMap<Kek, KeyObject>()
    const keyOf = (kek: Kek) => {
      const key = derived.get(kek) ?? derivedFrom(kek)
      derived.set(kek, key)
      return key
    }
    return {
      kekId: () => current().primary.kek_id,
      macOf: (kek_id, bytes) => {
        const kek = current().byId.get(kek_id)
        return kek && createHmac("sha256", keyOf(kek)).update(bytes).digest().subarray(0, macLength)
      }
    }
  })
)
