import { randomBytes } from "node:crypto"
import { existsSync } from "node:fs"
import { DateTime, Duration, Effect, Schema } from "effect"
import { AccountId } from "../domain/Identifiers.ts"
import * as PrivateFiles from "../wiring/PrivateFiles.ts"
import { CommandFailed } from "./Output.ts"

/** Creates are recognised for 24 hours; a run that begins in time must also end in time. */
const maxAge = Duration.hours(23)

/** How far the clocks of two machines may be apart. */
const clockDifference = Duration.minutes(5)

const Journal = Schema.fromJsonString(
  Schema.Struct({
    account_id: AccountId,
    created_at: Schema.DateTimeUtcFromString,
    salt: Schema.Uint8ArrayFromBase64.check(Schema.isMinLength(32))
  })
)

/**
 * The salt of an import into an account, from its journal, which is created for the first run. Refuses a journal so old
 * that the service may have forgotten what was imported with it.
 */
export const openJournal = Effect.fnUntraced(function* (path: string, account_id: AccountId) {
  const now = yield* DateTime.now
  if (!existsSync(path)) {
    const salt = randomBytes(32)
    yield* PrivateFiles.create(
      path,
      yield* Effect.orDie(Schema.encodeEffect(Journal)({ account_id, created_at: now, salt }))
    )
    return salt
  }
  const journal = yield* Effect.mapError(
    Effect.flatMap(PrivateFiles.read(path), Schema.decodeUnknownEffect(Journal)),
    (error) =>
      error._tag === "SchemaError" ? new CommandFailed({ message: `${path} is not the journal of an import.` }) : error
  )
  if (journal.account_id !== account_id) {
    return yield* new CommandFailed({ message: `${path} is the journal of an import into another account.` })
  }
  const age = now.epochMilliseconds - journal.created_at.epochMilliseconds
  if (age < -Duration.toMillis(clockDifference)) {
    return yield* new CommandFailed({
      message: `${path} is from ${DateTime.formatIso(journal.created_at)}, which is in the future: set the clock right.`
    })
  }
  if (age >= Duration.toMillis(maxAge)) {
    return yield* new CommandFailed({
      message: `${path} is from ${DateTime.formatIso(journal.created_at)}, and an import can be resumed for ${Duration.toHours(maxAge)} hours: remove from the file what was imported since, then the journal.`
    })
  }
  return journal.salt
})
