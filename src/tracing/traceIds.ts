import { randomFillSync } from "node:crypto"

/** Random bytes for many ids at once: asking for each costs more than the rest of an id. */
const random = Buffer.alloc(4096)
let used = random.length

const hexOf = (bytes: number): string => {
  if (used + bytes > random.length) {
    randomFillSync(random)
    used = 0
  }
  used += bytes
  return random.toString("hex", used - bytes, used)
}

/** The id of a new trace. */
export const newTraceId = (): string => hexOf(16)

/** The id of a new span. */
export const newSpanId = (): string => hexOf(8)
