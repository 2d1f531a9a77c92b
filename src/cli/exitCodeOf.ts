import { Cause, Console, Effect, Option } from "effect"

const sentenceOf = (error: unknown): string | undefined => {
  if (typeof error !== "object" || error === null || !("_tag" in error)) return undefined
  switch (error._tag) {
    case "InvalidSetting":
    case "EmbeddedPostgresError":
    case "RewrapIncomplete":
    case "AuditFault":
    case "KeyringRefusal":
      return "message" in error ? String(error.message) : undefined
    case "Unknown":
      return `There is no such ${"kind" in error ? String(error.kind) : "thing"}.`
    case "DatabaseFailure":
      return `The database failed: ${"message" in error ? String(error.message) : ""}.`
    case "ServiceUnavailable":
      return "The database has too much work; try again."
    case "KeyStoreUnavailable":
      return `Nothing can be sealed: ${"reason" in error ? String(error.reason) : ""}.`
    case "ServeError":
      return "HOST and PORT must be an address that is free to listen on."
  }
  return undefined
}

/** Tells a failure in one sentence on standard error. Wrong usage exits with 2, everything else with 1. */
export const exitCodeOf = <E>(cause: Cause.Cause<E>) =>
  Effect.gen(function* () {
    if (Cause.hasInterruptsOnly(cause)) return yield* Effect.interrupt
    const error: unknown = Option.getOrElse(Cause.findErrorOption(cause), () => Cause.squash(cause))
    const tag = typeof error === "object" && error !== null && "_tag" in error ? error._tag : undefined
    process.exitCode = tag === "ShowHelp" ? 2 : 1
    if (tag === "ShowHelp") return
    const sentence = sentenceOf(error)
    yield* sentence === undefined ? Effect.logError("Unexpected failure", cause) : Console.error(sentence)
  })
