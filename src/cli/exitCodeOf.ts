import { Cause, Console, Effect, Option } from "effect"
import { CliError, type Command } from "effect/cli"
import { SealingRefused } from "../port/Cipher.ts"
import { type OrderRefused, StoredKeyUnusable } from "../port/Credentials.ts"
import type { InvalidSetting } from "../wiring/Settings.ts"
import type { byok } from "./Commands.ts"
import { OutputFailed } from "./Output.ts"

/** The defects that are reported in a sentence, without a stack. */
const explained = [SealingRefused, OutputFailed, StoredKeyUnusable]
type Explained = InstanceType<(typeof explained)[number]>

/** The failures of commands, and of reading the settings of the log. */
type Failure = Command.Error<typeof byok> | InvalidSetting | CliError.CliError

/** Maximum ids to list in a sentence. */
const maxIds = 100

const listOf = (ids: ReadonlyArray<string>) =>
  ids.slice(0, maxIds).join(", ") + (ids.length > maxIds ? ` and ${ids.length - maxIds} more` : "")

const sentenceOnOrder = ({ foreign, missing }: OrderRefused) =>
  [
    "The order was not changed.",
    ...(missing.length > 0 ? [`Missing: ${listOf(missing)}.`] : []),
    ...(foreign.length > 0 ? [`Not of this workspace and provider: ${listOf(foreign)}.`] : [])
  ].join(" ")

const remedyFor = {
  UnknownKeyId: " Put it back: until then the credential can only be renamed or deleted.",
  AuthenticationFailed: " It can only be renamed or deleted.",
  UnsupportedFormat: " It can only be renamed or deleted."
}

const sentenceOf = (failure: Exclude<Failure | Explained, CliError.CliError>): string => {
  switch (failure._tag) {
    case "DatabaseFailure":
      return `The database failed: ${failure.message}.`
    case "HashTaken":
      return "There is an API key with this hash already."
    case "SealingRefused":
      return `Nothing can be sealed: ${failure.reason}.`
    case "NotKnown":
      return `There is no such ${failure.kind}.`
    case "OrderRefused":
      return sentenceOnOrder(failure)
    case "ServeError":
      return "HOST and PORT must be an address that is free to listen on."
    case "ServiceUnavailable":
      return "The database is overloaded; try again."
    case "StoredKeyUnusable":
      return `${failure.message}.${remedyFor[failure.reason._tag]}`
    default:
      return failure.message
  }
}

const isExplained = (defect: unknown): defect is Explained => explained.some((type) => defect instanceof type)

/**
 * Prints a failure on standard error, an expected one in a sentence. Returns the exit code: 2 for wrong usage, else 1.
 * Passes an interruption on.
 */
export const exitCodeOf = Effect.fnUntraced(function* (cause: Cause.Cause<Failure>) {
  if (Cause.hasInterruptsOnly(cause)) return yield* Effect.interrupt
  const failure = Option.getOrElse(Cause.findErrorOption(cause), () => {
    const defect = Cause.squash(cause)
    return isExplained(defect) ? defect : undefined
  })
  // The help has already explained wrong usage.
  if (failure?._tag === "ShowHelp") return 2
  yield* failure === undefined || CliError.isCliError(failure)
    ? Effect.logError("Unexpected failure", cause)
    : Console.error(sentenceOf(failure))
  return 1
})
