import { randomUUID } from "node:crypto"

/** The id of a new trace: what a UUID has at random is more than enough, and is made fastest. */
export const newTraceId = (): string => randomUUID().replaceAll("-", "")

/** The id of a new span. */
export const newSpanId = (): string => {
  const id = randomUUID()
  return id.slice(9, 13) + id.slice(24)
}
