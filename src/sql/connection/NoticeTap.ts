const noticeType = 0x4e // N
const readyType = 0x5a // Z
const unreplicatedCode = "C01000\0"

/**
 * Watches what PostgreSQL sends. Reports when it is ready for the next statement, and when a notice has SQLSTATE 01000:
 * a commit stopped waiting for its synchronous replica and may exist on this server only.
 */
export class NoticeTap {
  readonly #onUnreplicated: () => void
  readonly #onReady: () => void
  /** How many bytes are left of a message that is skipped. */
  #skip = 0
  #ready = false
  /** The start of a message that has not fully arrived. */
  #kept: Buffer = Buffer.alloc(0)

  constructor(onUnreplicated: () => void, onReady: () => void = () => undefined) {
    this.#onUnreplicated = onUnreplicated
    this.#onReady = onReady
  }

  read(chunk: Buffer): void {
    let rest = this.#kept.length === 0 ? chunk : Buffer.concat([this.#kept, chunk])
    this.#kept = Buffer.alloc(0)
    while (rest.length > 0) {
      if (this.#skip > 0) {
        const skipped = Math.min(this.#skip, rest.length)
        this.#skip -= skipped
        rest = rest.subarray(skipped)
        continue
      }
      const length = rest.length < 5 ? Number.POSITIVE_INFINITY : 1 + rest.readUInt32BE(1)
      const wanted = rest[0] === noticeType
      if (rest.length < 5 || (wanted && rest.length < length)) {
        this.#kept = rest
        return
      }
      if (wanted && this.#ready && rest.toString("latin1", 5, length).includes(unreplicatedCode)) this.#onUnreplicated()
      if (rest[0] === readyType) {
        this.#ready = true
        this.#onReady()
      }
      this.#skip = length
    }
  }
}
