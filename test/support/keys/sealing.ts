import type { Kek } from "../../../src/crypto/keyring/Keyring.ts"
import type { FillRandom } from "../../../src/runtime/AesGcm.ts"
import * as SealingFormat1 from "../../../src/crypto/SealingFormat1.ts"
import type { SealedKey } from "../../../src/domain/SealedKey.ts"

type Row = Pick<SealedKey, "sealed" | "wrapped_dek">

/** Seals under a key at hand; `fill` gives DEK(32), nonce of the wrap(12) and nonce of the data(12). */
export const seal = (kek: Kek, plaintext: Uint8Array, context: Uint8Array, fill?: FillRandom): SealedKey => {
  if (fill === undefined) return SealingFormat1.seal(kek, plaintext, context)
  const random = Buffer.alloc(56)
  fill(random)
  const [dek, nonceOfWrap, nonceOfData] = [random.subarray(0, 32), random.subarray(32, 44), random.subarray(44)]
  return SealingFormat1.seal(kek, plaintext, context, (target) => {
    Buffer.concat(target.length === 12 ? [nonceOfWrap] : [dek, nonceOfData]).copy(target)
  })
}

export const open = (kek: Kek, row: Row, context: Uint8Array) =>
  SealingFormat1.open(new Map([[kek.kek_id, kek]]), { ...row, kek_id: kek.kek_id }, context)

export const rewrap = (from: Kek, to: Kek, row: Row, context: Uint8Array, fill?: FillRandom) =>
  SealingFormat1.rewrap(new Map([[from.kek_id, from]]), to, { ...row, kek_id: from.kek_id }, context, fill)

/** A copy with one bit flipped. */
export const flipped = (given: Uint8Array, bit: number): Buffer => {
  const copy = Buffer.from(given)
  copy.writeUInt8(copy.readUInt8(bit >> 3) ^ (1 << (bit & 7)), bit >> 3)
  return copy
}
