import { registerHooks } from "node:module"

const answer = "const wasAccepted = isAccepted(yield* post("
const early = "yield* cursor.advance(holder, { after: last_seq, done: 0 })"

/** Builds the service with a cursor that moves before the answer. */
registerHooks({
  load: (url, context, next) => {
    const loaded = next(url, context)
    if (!url.endsWith("/src/service/audit/Webhook.ts")) return loaded
    const source = loaded.source === undefined ? "" : Buffer.from(loaded.source as Uint8Array | string).toString()
    if (!source.includes(answer)) throw new Error("the line that posts has changed")
    return { ...loaded, source: source.replace(answer, `${early}; ${answer}`) }
  }
})
