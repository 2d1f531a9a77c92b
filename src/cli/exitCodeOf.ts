import { Cause, Console, Effect, Option } from "effect"
import type { CliError } from "effect/cli"
import type { HttpServerError } from "effect/http"
import type { ServiceUnavailable } from "../domain/Errors.ts"
import { KeyStoreUnavailable } from "../port/Cipher.ts"
import { DatabaseFailure } from "../port/DatabaseFailure.ts"
import type { KeyringRefusal } from "../port/KeyringEditor.ts"
import type { HashTaken, NotKnown } from "../service/Accounts.ts"
import type { AuditFault } from "../service/Audit.ts"
import { StoredKeyUnusable } from "../service/makeUpdate.ts"
import type { OrderRefused } from "../service/OperatorCredentials.ts"
import type { EmbeddedPostgresError } from "../wiring/Persistence.ts"
import type { InvalidSetting } from "../wiring/Settings.ts"
import type { UnusableLeakedText } from "../wiring/readLeakedText.ts"
import type { ImportIncomplete } from "./CredentialImport.ts"
import type { ImportRefused } from "./ImportFile.ts"
import type { RewrapIncomplete } from "./KeyringCommand.ts"
import type { LeakSearchIncomplete } from "./LeakCommand.ts"
import { OutputFailed } from "./Output.ts"

/** Everything a command can fail with. */
type Failure =
  | AuditFault
  | CliError.CliError
  | EmbeddedPostgresError
  | HashTaken
  | HttpServerError.ServeError
  | ImportIncomplete
  | ImportRefused
  | InvalidSetting
  | KeyringRefusal
  | KeyStoreUnavailable
  | LeakSearchIncomplete
  | NotKnown
  | OrderRefused
  | OutputFailed
  | RewrapIncomplete
  | ServiceUnavailable
  | UnusableLeakedText

/** How many ids a sentence names. */
const named = 100

const listOf = (ids: ReadonlyArray<string>) =>
  ids.slice(0, named).join(", ") + (ids.length > named ? ` and ${ids.length - named} more` : "")

const sentenceOnOrder = ({ foreign, missing }: OrderRefused) =>
  [
    "The order was not changed.",
    ...(missing.length > 0 ? [`Missing: ${listOf(missing)}.`] : []),
    ...(foreign.length > 0 ? [`Not of this workspace and provider: ${listOf(foreign)}.`] : [])
  ].join(" ")

/** One sentence for the operator; none for wrong usage, which the help has explained. */
const sentenceOf = (failure: Failure): string | undefined => {
  switch (failure._tag) {
    case "AuditFault":
    case "EmbeddedPostgresError":
    case "ImportIncomplete":
    case "ImportRefused":
    case "InvalidSetting":
    case "KeyringRefusal":
    case "LeakSearchIncomplete":
    case "OutputFailed":
    case "RewrapIncomplete":
    case "UnusableLeakedText":
      return failure.message
    case "HashTaken":
      return "There is an API key with this hash already."
    case "OrderRefused":
      return sentenceOnOrder(failure)
    case "NotKnown":
      return `There is no such ${failure.kind}.`
    case "ServiceUnavailable":
      return "The database is overloaded; try again."
    case "KeyStoreUnavailable":
      return `Nothing can be sealed: ${failure.reason}.`
    case "ServeError":
      return "HOST and PORT must be an address that is free to listen on."
    default:
      return undefined
  }
}

/** Prints a failure on standard error, in one sentence if expected, and returns the exit code: 2 for wrong usage, else 1. */
export const exitCodeOf = (cause: Cause.Cause<Failure>) =>
  Effect.gen(function* () {
    if (Cause.hasInterruptsOnly(cause)) return yield* Effect.interrupt
    const failure = Option.getOrUndefined(Cause.findErrorOption(cause))
    if (failure?._tag === "ShowHelp") return 2
    const defect = Cause.squash(cause)
    const sentence =
      failure !== undefined
        ? sentenceOf(failure)
        : defect instanceof OutputFailed
          ? defect.message
          : defect instanceof DatabaseFailure
            ? `The database failed: ${defect.message}.`
            : defect instanceof KeyStoreUnavailable
              ? `Nothing can be sealed: ${defect.reason}.`
              : defect instanceof StoredKeyUnusable
                ? `${defect.message}. It can only be renamed or deleted.`
                : undefined
    yield* sentence === undefined ? Effect.logError("Unexpected failure", cause) : Console.error(sentence)
    return 1
  })
