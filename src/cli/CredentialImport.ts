import { randomBytes } from "node:crypto"
import { existsSync, fstatSync, read } from "node:fs"
import { extname } from "node:path"
import { promisify } from "node:util"
import { Console, DateTime, Duration, Effect, Option, Schema, Stream } from "effect"
import { Argument, CliError, Command } from "effect/cli"
import { InvalidParams } from "../domain/Errors.ts"
import { AccountId } from "../domain/Identifiers.ts"
import type { Issue } from "../domain/Issue.ts"
import { QueueLimits } from "../runtime/FairQueue.ts"
import { importCredential, makeImportCheck } from "../service/credentials/importCredential.ts"
import { Accounts } from "../service/accounts/Accounts.ts"
import * as CommandLayers from "../wiring/CommandLayers.ts"
import * as PrivateFiles from "../wiring/PrivateFiles.ts"
import { csvRefused, type Entry, readEntries } from "./ImportFile.ts"
import { account, optionalText, toggle } from "./Arguments.ts"
import { CommandFailed, makeProgress, StandardStreams, toJson, writeWhole } from "./Output.ts"

/** How many records to process at a time, so that they share statements. */
const concurrency = 128

/** The result of a line, as printed. */
type Result =
  | { readonly line: number; readonly id: string; readonly label: string; readonly replayed: boolean }
  | { readonly line: number; readonly issues: ReadonlyArray<Issue> }

/** In a dry run, a valid line has no id and no issues, and counts as imported. */
const kindOf = (result: Result) =>
  "id" in result ? (result.replayed ? "replayed" : "imported") : result.issues.length > 0 ? "refused" : "imported"

interface Counts {
  /** How many bytes of the file were read. */
  readonly bytes: number
  /** In a dry run, the valid lines. */
  readonly imported: number
  readonly replayed: number
  readonly refused: number
}

const summaryOf = ({ imported, refused, replayed }: Counts) =>
  `imported ${imported}, imported before ${replayed}, refused ${refused}`

const checkedSummaryOf = ({ imported, refused }: Counts) => `valid ${imported}, refused ${refused}`

const toSentence = (text: string) => `${text.charAt(0).toUpperCase()}${text.slice(1)}.`

interface Source {
  readonly chunks: AsyncIterable<Buffer>
  /** Size in bytes, if known. */
  readonly size: number | undefined
}

const readInto = promisify(read)

/** Reads a file and leaves it open, unlike Node's streams, which close it when their reader stops early. */
async function* chunksOf(fd: number) {
  while (true) {
    const { buffer, bytesRead } = await readInto(fd, Buffer.allocUnsafeSlow(64 * 1024), 0, 64 * 1024, null)
    if (bytesRead === 0) return
    yield buffer.subarray(0, bytesRead)
  }
}

/** Opens the import file until the scope closes; `-` names standard input. Refuses a name that ends in `.csv`. */
const sourceOf = Effect.fnUntraced(function* (file: string) {
  if (extname(file).toLowerCase() === ".csv") return yield* csvRefused()
  if (file === "-") return { chunks: (yield* StandardStreams).stdin, size: undefined } satisfies Source
  const fd = yield* PrivateFiles.open(file)
  const stats = fstatSync(fd)
  return { chunks: chunksOf(fd), size: stats.isFile() ? stats.size : undefined } satisfies Source
})

const readError = (error: unknown) =>
  error instanceof CommandFailed
    ? error
    : new CommandFailed({ message: `The file cannot be read (${(error as NodeJS.ErrnoException).code}).` })

const isInvalidParams = (error: unknown): error is InvalidParams => error instanceof InvalidParams

/**
 * Imports or checks the records of a file by concurrent calls of `processOne`. Prints, in the order of the lines, each
 * result whose kind `prints` selects. Fails if a line is refused, or if there is no record.
 */
const processAll = Effect.fnUntraced(function* <E, R>(
  { chunks, size }: Source,
  summary: (counts: Counts) => string,
  prints: (kind: ReturnType<typeof kindOf>) => boolean,
  processOne: (entry: Extract<Entry, { readonly body: unknown }>) => Effect.Effect<Result, E | InvalidParams, R>
) {
  const counts = { bytes: 0, imported: 0, replayed: 0, refused: 0 }
  const { stderr, stdout } = yield* StandardStreams
  // Results on the same terminal would break the bar.
  const showsProgress = stderr.isTTY === true && stdout.isTTY !== true
  const progress = yield* makeProgress(summary, ({ bytes }) =>
    size === undefined ? undefined : bytes / Math.max(1, size)
  )

  const resultOf = (entry: Entry) =>
    "issue" in entry
      ? Effect.succeed({ line: entry.line, issues: [entry.issue] })
      : Effect.catchIf(processOne(entry), isInvalidParams, ({ error }) =>
          Effect.succeed({ line: entry.line, issues: error.metadata.issues })
        )
  const onResult = Effect.fnUntraced(function* (result: Result) {
    const kind = kindOf(result)
    counts[kind] += 1
    if (prints(kind)) yield* writeWhole(`${toJson(result)}\n`, `${summary(counts)}; run it again`)
    if (showsProgress) yield* progress.report({ ...counts })
  })

  const entries = readEntries(chunks, (count) => (counts.bytes += count))
  yield* Stream.fromAsyncIterable(entries, readError).pipe(
    Stream.mapEffect(resultOf, { concurrency: Math.min(concurrency, (yield* QueueLimits).imports) }),
    Stream.runForEach(onResult),
    Effect.ensuring(progress.end)
  )
  if (counts.refused > 0) {
    return yield* new CommandFailed({ message: `Lines were refused. ${toSentence(summary(counts))}` })
  }
  if (counts.imported + counts.replayed === 0) {
    return yield* new CommandFailed({ message: "The file has no record: nothing was imported." })
  }
  yield* Console.error(toSentence(summary(counts)))
})

/**
 * How old a journal may be. The service recognises repeated creates for 24 hours. The limit is an hour shorter, so that
 * a run that begins in time also ends in time.
 */
const maxAge = Duration.hours(23)

/** How much the clocks of two machines may differ. */
const maxClockSkew = Duration.minutes(5)

/**
 * What a repeated run of an import needs. The idempotency key of each create derives from the salt, so a run with the
 * same salt creates nothing twice.
 */
const Journal = Schema.fromJsonString(
  Schema.Struct({
    account_id: AccountId,
    created_at: Schema.DateTimeUtcFromString,
    salt: Schema.Uint8ArrayFromBase64.check(Schema.isMinLength(32))
  })
)

/**
 * Reads the salt of the journal, or generates one if there is no journal. Refuses the journal of another account, one
 * from the future, and one so old that the service may not recognise its creates.
 */
const readSalt = Effect.fnUntraced(function* (path: string | undefined, account_id: AccountId) {
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

/** Returns the salt of the journal. Creates the journal unless it exists. */
const openJournal = Effect.fnUntraced(function* (path: string, account_id: AccountId) {
  const isNew = !existsSync(path)
  const salt = yield* readSalt(path, account_id)
  const journal = { account_id, created_at: yield* DateTime.now, salt }
  if (isNew) yield* PrivateFiles.create(path, yield* Effect.orDie(Schema.encodeEffect(Journal)(journal)))
  return salt
})

const importInto = Effect.fnUntraced(function* (source: Source, account_id: AccountId, path: string) {
  yield* (yield* Accounts).requireAccount(account_id)
  const salt = yield* openJournal(path, account_id)
  yield* processAll(
    source,
    summaryOf,
    () => true,
    ({ body, line }) =>
      Effect.map(importCredential(body, salt), ({ credential: { id, label }, replayed }) => ({
        line,
        id,
        label,
        replayed
      }))
  )
})

/** The dry run: prints only refused lines, and changes nothing. */
const checkAll = Effect.fnUntraced(function* (source: Source, account_id: AccountId, path: string | undefined) {
  yield* (yield* Accounts).requireAccount(account_id)
  const checkRecord = yield* makeImportCheck(account_id, yield* readSalt(path, account_id))
  yield* processAll(
    source,
    checkedSummaryOf,
    (kind) => kind === "refused",
    ({ body, line }) => Effect.as(checkRecord(body), { line, issues: [] })
  )
})

/** The failure for flags that are valid one by one, but not together; it prints the help. */
const wrongUsage = (cause: string) =>
  new CliError.ShowHelp({
    commandPath: ["byok", "credential", "import"],
    errors: [new CliError.UserError({ cause })]
  })

/** The path of the journal; undefined for standard input without `--journal`. */
const journalPathOf = (file: string, journal: Option.Option<string>) =>
  Option.getOrElse(journal, () => (file === "-" ? undefined : `${file}.journal`))

export const credentialImport = Command.make(
  "import",
  {
    account,
    file: Argument.String("FILE").pipe(
      Argument.withDescription(
        "File of mode 0400 or 0600 with the body of a create on each line, or - for standard input"
      )
    ),
    journal: optionalText("journal", "File that makes it safe to run the import again (default: FILE.journal)"),
    dryRun: toggle("dry-run", "Check every line and change nothing")
  },
  Effect.fnUntraced(function* ({ account, dryRun, file, journal }) {
    const path = journalPathOf(file, journal)
    const run = Effect.gen(function* () {
      if (dryRun)
        return yield* CommandLayers.asOperator(CommandLayers.withoutKeyring)(
          checkAll(yield* sourceOf(file), account, path)
        )
      if (path === undefined) {
        return yield* wrongUsage("--journal must be given when FILE is -: it makes it safe to run the import again.")
      }
      const source = yield* sourceOf(file)
      return yield* CommandLayers.asOperator(CommandLayers.sealing, account)(importInto(source, account, path))
    })
    yield* Effect.scoped(run)
  })
).pipe(Command.withDescription("Create credentials from a file of JSON lines; safe to run again"))
