import { randomFillSync } from "node:crypto"
import { Layer } from "effect"
import { SecureRandom } from "effect/crypto"

/** Fills a buffer with random bytes. Tests of golden ciphertexts use fixed bytes. */
export type FillRandom = (target: Buffer) => void

/** Reads random bytes from the system in large blocks, because small reads are slow. */
export class RandomBlock {
  readonly #block: Buffer
  #used: number

  constructor(size: number) {
    this.#block = Buffer.allocUnsafeSlow(size)
    this.#used = size
  }

  /** Fills a buffer no larger than the block. Bytes are used once and wiped from the block. */
  readonly fill: FillRandom = (target) => {
    if (this.#used + target.length > this.#block.length) {
      randomFillSync(this.#block)
      this.#used = 0
    }
    const end = this.#used + target.length
    this.#block.copy(target, 0, this.#used, end)
    this.#block.fill(0, this.#used, end)
    this.#used = end
  }
}

export const fillRandom: FillRandom = new RandomBlock(64 * 1024).fill

/** Provides random bytes for ids and API keys from a separate block. */
export const layer = Layer.sync(SecureRandom.SecureRandom, () => {
  const { fill } = new RandomBlock(16 * 1024)
  return SecureRandom.make((size) => {
    const bytes = Buffer.allocUnsafeSlow(size)
    fill(bytes)
    return bytes
  })
})
