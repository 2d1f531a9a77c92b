import { Console, Effect, Metric, Option } from "effect"
import { HttpServerRequest } from "effect/http"
import { InvalidParams } from "../../src/domain/Errors.ts"
import { addHeader } from "../support/http/HttpProbe.ts"
import type { Channel } from "./Channel.ts"

interface Plant {
  readonly into: ReadonlyArray<Channel>
  readonly leak: (key: string) => Effect.Effect<void, InvalidParams>
}

/** The channels of data that the database stores. */
export const stored: ReadonlyArray<Channel> = ["dump", "data files", "write-ahead log", "log of PostgreSQL"]

/** The name of the leak by a cipher that does not encrypt. */
export const withoutCipher = "the key is stored as it is"

const authorization = Effect.map(
  Effect.serviceOption(HttpServerRequest.HttpServerRequest),
  Option.match({ onNone: () => "", onSome: ({ headers }) => headers["authorization"] ?? "" })
)

/** Typical leaks, each under the name of the credential that triggers it. */
export const plants: Readonly<Record<string, Plant>> = {
  [withoutCipher]: { into: stored, leak: () => Effect.void },
  "an entry of the log": {
    into: ["standard error"],
    leak: (key) => Effect.logTrace("creating", { provider: "xai", key })
  },
  "nine characters in the log": { into: ["standard error"], leak: (key) => Effect.logInfo(key.slice(7, 16)) },
  "base64 in the log": {
    into: ["standard error"],
    leak: (key) => Effect.logInfo(Buffer.from(`key=${key}`).toString("base64"))
  },
  "the token in the log": {
    into: ["standard error"],
    leak: () => Effect.flatMap(authorization, (token) => Effect.logDebug(token))
  },
  "a line on standard output": { into: ["standard output"], leak: (key) => Console.log(`created ${key}`) },
  "the message of a defect": {
    into: ["standard error"],
    leak: (key) => Effect.die(new Error(`cannot store ${key}`))
  },
  "an attribute of the span": { into: ["spans"], leak: (key) => Effect.annotateCurrentSpan("key", key) },
  "the name of a span": { into: ["spans"], leak: (key) => Effect.withSpan(Effect.void, key) },
  "a label of a series": {
    into: ["metrics"],
    leak: (key) => Metric.update(Metric.counter("byok.router.plans", { attributes: { result: key } }), 1)
  },
  "the message of an issue": {
    into: ["bodies"],
    leak: (key) => Effect.fail(InvalidParams.of({ path: ["key"], message: `not ${key}` }))
  },
  "a header of the answer": { into: ["headers"], leak: (key) => addHeader("x-debug", key.toUpperCase()) }
}
