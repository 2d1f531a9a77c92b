import { Effect, type Result } from "effect"
import { type Kek, makeKeyringEncryption } from "../../../src/crypto/keyring/Keyring.ts"
import type { FillRandom } from "../../../src/runtime/AesGcm.ts"
import * as SealingFormat1 from "../../../src/crypto/SealingFormat1.ts"
import type { SealedKey } from "../../../src/domain/SealedKey.ts"

type Row = Pick<SealedKey, "sealed" | "wrapped_dek">

const storeOf = (keks: ReadonlyArray<Kek>, fill?: FillRandom) =>
  makeKeyringEncryption(
    { current: () => ({ primary: keks[0], byId: new Map(keks.map((kek) => [kek.id, kek])) }) },
    fill
  )

/** A keyring's keys are in memory: nothing suspends here. */
const atOnce = <A, E>(effect: Effect.Effect<A, E>): Result.Result<A, E> => Effect.runSync(Effect.result(effect))

/** Seals under a key at hand; `fill` gives DEK(32), nonce of the wrap(12) and nonce of the data(12). */
export const seal = (kek: Kek, plaintext: Uint8Array, context: Uint8Array, fill?: FillRandom): SealedKey => {
  if (fill === undefined) return Effect.runSync(SealingFormat1.seal(storeOf([kek]), kek.id, plaintext, context))
  const random = Buffer.alloc(56)
  fill(random)
  const store = storeOf([kek], (target) => void random.copy(target, 0, 32, 44))
  return Effect.runSync(
    SealingFormat1.seal(store, kek.id, plaintext, context, (target) => {
      Buffer.concat([random.subarray(0, 32), random.subarray(44)]).copy(target)
    })
  )
}

export const open = (kek: Kek, row: Row, context: Uint8Array) =>
  atOnce(SealingFormat1.open(storeOf([kek]), { ...row, kek_id: kek.id }, context))

export const rewrap = (from: Kek, to: Kek, row: Row, context: Uint8Array, fill?: FillRandom) =>
  atOnce(SealingFormat1.rewrap(storeOf([to, from], fill), to.id, { ...row, kek_id: from.id }, context))

/** A copy with one bit flipped. */
export const flipped = (given: Uint8Array, bit: number): Buffer => {
  const copy = Buffer.from(given)
  copy.writeUInt8(copy.readUInt8(bit >> 3) ^ (1 << (bit & 7)), bit >> 3)
  return copy
}
