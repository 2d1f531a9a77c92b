import { Layer } from "effect"
import { SecureRandom } from "effect/crypto"
import { RandomBlock } from "./RandomBlock.ts"

/** Draws ids and API keys from a block of their own. */
export const layer = Layer.sync(SecureRandom.SecureRandom, () => {
  const { fill } = new RandomBlock(16 * 1024)
  return SecureRandom.make((size) => {
    const bytes = Buffer.allocUnsafeSlow(size)
    fill(bytes)
    return bytes
  })
})
