import { randomBytes } from "node:crypto"
import { existsSync } from "node:fs"
import { DateTime, Duration, Effect, Schema } from "effect"
import { AccountId } from "../domain/Identifiers.ts"
import * as PrivateFiles from "../wiring/PrivateFiles.ts"
import { CommandFailed } from "./Output.ts"

/**
 * How old a journal may be. The service recognises repeated creates for 24 hours; the hour less lets a run that begins in time
 * also end in time.
 */
const maxAge = Duration.hours(23)

/** How much the clocks of two machines may differ. */
const maxClockSkew = Duration.minutes(5)

/**
 * What a repeated run of an import needs. The idempotency key of each create derives from the salt, so a run with the same salt
 * creates nothing twice.
 */
const Journal = Schema.fromJsonString(
  Schema.Struct({
    account_id: AccountId,
    created_at: Schema.DateTimeUtcFromString,
    salt: Schema.Uint8ArrayFromBase64.check(Schema.isMinLength(32))
  })
)

/**
 * Reads the salt of the journal, or makes one if there is no journal. Refuses a journal so old that the service may not
 * recognise its creates.
 */
export const readSalt = Effect.fnUntraced(function* (path: string | undefined, account_id: AccountId) {
  if (path === undefined || !existsSync(path)) return randomBytes(32)
  const now = yield* DateTime.now
  const journal = yield* Effect.mapError(
    Effect.flatMap(PrivateFiles.read(path), Schema.decodeUnknownEffect(Journal)),
    (error) =>
      error._tag === "SchemaError" ? new CommandFailed({ message: `${path} is not the journal of an import.` }) : error
  )
  if (journal.account_id !== account_id) {
    return yield* new CommandFailed({ message: `${path} is the journal of an import into another account.` })
  }
  const age = now.epochMilliseconds - journal.created_at.epochMilliseconds
  if (age < -Duration.toMillis(maxClockSkew)) {
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

/** Returns the salt of the journal, and creates the journal unless it exists. */
export const openJournal = Effect.fnUntraced(function* (path: string, account_id: AccountId) {
  const isNew = !existsSync(path)
  const salt = yield* readSalt(path, account_id)
  const journal = { account_id, created_at: yield* DateTime.now, salt }
  if (isNew) yield* PrivateFiles.create(path, yield* Effect.orDie(Schema.encodeEffect(Journal)(journal)))
  return salt
})
