import { writeFileSync } from "node:fs"
import { Socket } from "node:net"
import type { Writable } from "node:stream"
import { Array as Arr, Clock, Console, Context, Data, DateTime, Effect, Option, Redacted } from "effect"
import { CliError, CliOutput, type HelpDoc } from "effect/cli"
import type { InvalidParams } from "../domain/Errors.ts"
import { root } from "./Arguments.ts"

/** Standard error, for progress. */
interface Screen {
  readonly isTTY?: boolean
  /** 0 if the terminal does not know its width. */
  readonly columns?: number
  readonly write: (text: string) => unknown
}

/** The streams of commands; tests replace those of the process. */
export const StandardStreams = Context.Reference<{
  readonly stdin: AsyncIterable<Buffer> & { readonly isTTY?: boolean }
  readonly stdout: Writable & { readonly isTTY?: boolean }
  readonly stderr: Screen
}>("byok/StandardStreams", { defaultValue: () => process })

/** Standard output failed. `change` describes a change that the command has made nevertheless. */
export class OutputFailed extends Data.TaggedError("OutputFailed")<{
  readonly code: string
  readonly change?: string | undefined
}> {
  override get message() {
    return `Standard output cannot be written (${this.code})${this.change === undefined ? "" : `: ${this.change}`}.`
  }
}

/** A command did not do everything. The message says why, or how much is left. */
export class CommandFailed extends Data.TaggedError("CommandFailed")<{ readonly message: string }> {}

/** Fails a command with `outcome` and every issue of its refused input. */
export const refusedAs =
  (outcome: string) =>
  ({ error }: InvalidParams) => {
    const issues = error.metadata.issues.map(({ message, path }) => `${path.join(".")} ${message}`)
    return Effect.fail(new CommandFailed({ message: `${outcome}: ${issues.join("; ")}.` }))
  }

const ignore = () => undefined

const codeOf = (error: unknown) => (error as NodeJS.ErrnoException).code ?? "unknown"

/** Whether a stream is Node's stream for files, which does not report partial writes to a full disk. */
const isFile = (stream: Writable): stream is Writable & { readonly fd: number } =>
  "fd" in stream && !(stream instanceof Socket)

const writeToFile = (fd: number, text: string) =>
  Effect.try({
    try: () => writeFileSync(fd, text),
    catch: (error) => new OutputFailed({ code: codeOf(error) })
  })

const writeToStream = (stream: Writable, text: string): Effect.Effect<void, OutputFailed> =>
  Effect.callback((resume) => {
    // Without a listener, an error event would end the process. Kept after a failure, because the event may follow.
    stream.on("error", ignore)
    stream.write(text, (error) => {
      if (error !== undefined && error !== null) return resume(Effect.fail(new OutputFailed({ code: codeOf(error) })))
      stream.off("error", ignore)
      resume(Effect.void)
    })
  })

/**
 * Control characters, Unicode's line separators, and those that change the direction of text: they could control a
 * terminal, fake a line of output, or show a text in another order.
 */
const unprintable = /[\p{Cc}\p{Bidi_Control}\u2028\u2029]/gu

const escaped = (character: string) => `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`

/** Shows unprintable characters as JSON escapes. */
export const printable = (text: string) => text.replace(unprintable, escaped)

/**
 * Writes to standard output and waits for the write. Returns false if the reader is gone. Shows unprintable characters as
 * JSON escapes, except tabs and line breaks, which a keyring file may have.
 */
export const writeOut = (text: string): Effect.Effect<boolean, OutputFailed> =>
  Effect.flatMap(StandardStreams, ({ stdout }) => {
    const safe = text.replace(unprintable, (one) => (/[\t\n\r]/.test(one) ? one : escaped(one)))
    return isFile(stdout) ? writeToFile(stdout.fd, safe) : writeToStream(stdout, safe)
  }).pipe(
    Effect.as(true),
    Effect.catchIf(
      ({ code }) => code === "EPIPE",
      () => Effect.succeed(false)
    )
  )

/** Writes to standard output like `writeOut`, but fails if the reader is gone. The failure reports `change`. */
export const writeWhole = (text: string, change: string) =>
  writeOut(text).pipe(
    Effect.filterOrFail(
      (written) => written,
      () => new OutputFailed({ code: "EPIPE" })
    ),
    Effect.mapError(({ code }) => new OutputFailed({ code, change }))
  )

type Value = string | number | boolean | null | ReadonlyArray<unknown> | Redacted.Redacted | DateTime.Utc
type Values<A> = { readonly [Name in keyof A]: Value }

const jsonValue = (value: Value) =>
  Redacted.isRedacted(value) ? Redacted.value(value) : DateTime.isDateTime(value) ? DateTime.formatIso(value) : value

const jsonOf = <A extends Values<A>>(values: A) =>
  Object.fromEntries(Object.entries<Value>(values).map(([name, value]) => [name, jsonValue(value)]))

const textOf = (value: Value) => (Array.isArray(value) ? JSON.stringify(value) : String(jsonValue(value) ?? "-"))

/** Formats one line per member: its name and value, the values aligned. */
export const lines = <A extends Values<A>>(values: A) => {
  const width = Math.max(...Object.keys(values).map((name) => name.length))
  return Object.entries<Value>(values)
    .map(([name, value]) => `${name.padEnd(width)}  ${printable(textOf(value))}`)
    .join("\n")
}

/** Formats rows as lines with aligned columns; does not pad the last column. */
export const aligned = (cells: ReadonlyArray<ReadonlyArray<string>>): ReadonlyArray<string> => {
  const rows = cells.map((row) => row.map(printable))
  const widths = (rows[0] ?? []).map((_, column) => Math.max(...rows.map((row) => row[column]?.length ?? 0)))
  return rows.map((row) =>
    row
      .map((cell, column) => (column === row.length - 1 ? cell : cell.padEnd(widths[column] ?? 0)))
      .join("  ")
      .trimEnd()
  )
}

/** Formats JSON without unprintable characters. */
export const toJson = (object: object) => printable(JSON.stringify(object))

/**
 * Prints the object as JSON with `--json`, else the text. `change` describes what the command has changed, if anything;
 * the error reports it if the result cannot be printed.
 */
export const printJsonOr = Effect.fnUntraced(function* (object: object, text: string, change?: string) {
  const { json } = yield* root
  const line = `${json ? toJson(object) : text}\n`
  yield* change === undefined ? writeOut(line) : writeWhole(line, change)
})

/** Prints a result, revealing redacted members, such as a new key. */
export const print = <A extends Values<A>>(values: A, change?: string) =>
  printJsonOr(jsonOf(values), lines(values), change)

/** Prints the result of an operation that changes something; `changeOf` describes the change. */
export const thenPrint =
  <A extends Values<A>>(changeOf: (result: A) => string) =>
  <E, R>(operation: Effect.Effect<A, E, R>) =>
    Effect.flatMap(operation, (result) => print(result, changeOf(result)))

/** Prints a list: a block per element, or one JSON object with the list as its only member. */
export const printList = <A extends Values<A>>(name: string, list: ReadonlyArray<A>) =>
  printJsonOr({ [name]: list.map(jsonOf) }, list.map(lines).join("\n\n"))

/**
 * Prints a list like `printList`, page by page: `listAfter` returns those that follow an element. Stops if the reader of
 * the output is gone. As text, prints `none` for an empty list, and a row per element if `columns` are passed.
 */
export const printPages = Effect.fnUntraced(function* <A extends Values<A>, E, R>(
  name: string,
  listAfter: (last: A | undefined) => Effect.Effect<ReadonlyArray<A>, E, R>,
  none = "",
  columns?: ReadonlyArray<keyof A>
) {
  const { json } = yield* root
  const separator = json ? "," : columns === undefined ? "\n\n" : "\n"
  const texts = (page: ReadonlyArray<A>) =>
    json
      ? page.map((values) => toJson(jsonOf(values)))
      : columns === undefined
        ? page.map(lines)
        : aligned(page.map((values) => columns.map((column) => textOf(values[column]))))
  let last: A | undefined
  let page = yield* listAfter(last)
  yield* writeOut(json ? `{${JSON.stringify(name)}:[` : page.length === 0 ? none : "")
  while (page.length > 0) {
    if (!(yield* writeOut((last === undefined ? "" : separator) + texts(page).join(separator)))) return
    last = page.at(-1)
    page = yield* listAfter(last)
  }
  yield* writeOut(json ? "]}\n" : "\n")
})

const formatter = CliOutput.defaultFormatter({ colors: false })

/** Replaces what may be a key in an error. */
const mask = "…"

/** The form of a flag's name, perhaps misspelt. Anything else may be a key, or one letter of a key after a hyphen. */
const flagName = /^--[a-z-]+$/

/** Masks positional arguments, the values of flags, and unknown flags without a flag's form: any may be a key. */
const withoutValues = (error: CliError.CliError) => {
  switch (error._tag) {
    case "InvalidValue": {
      const { expected, kind, option, value } = error
      return new CliError.InvalidValue({ expected, kind, option, value: value === "" ? "" : mask })
    }
    case "UnexpectedArgument":
      return new CliError.UnexpectedArgument({ arguments: error.arguments.map(() => mask) })
    case "UnknownSubcommand": {
      const { parent, suggestions } = error
      return new CliError.UnknownSubcommand({ parent, subcommand: mask, suggestions })
    }
    case "UnrecognizedOption": {
      const { command, option, suggestions } = error
      return new CliError.UnrecognizedOption({ command, option: flagName.test(option) ? option : mask, suggestions })
    }
    default:
      return error
  }
}

/** Masks words long enough to be a key or a hash, such as an unknown flag. */
const withoutSecrets = (text: string) => text.replace(/[^\s"'`]{24,}/g, mask)

/** Prints text on standard output. A failure is a defect, because a presenter cannot fail. */
const printText = (text: string) => Effect.orDie(Effect.asVoid(writeOut(`${text}\n`)))

/** Formats the help of a command, and marks the flags that it requires. */
const helpOf = (doc: HelpDoc.HelpDoc) =>
  formatter.formatHelpDoc({
    ...doc,
    flags: doc.flags.map((flag) =>
      flag.required ? { ...flag, description: Option.map(flag.description, (text) => `${text} (required)`) } : flag
    )
  })

/** Prints requested help on standard output; after wrong usage, prints the errors and the help on standard error. */
export const presenterLayer = CliOutput.layerPresenter({
  present: (event) => {
    switch (event._tag) {
      case "Help": {
        const text = helpOf(event.helpDoc)
        return event.reason === "Requested" ? printText(text) : Console.error(text)
      }
      case "InvalidInvocation": {
        const masked = Arr.dedupeWith(event.errors.map(withoutValues), (one, other) => one.message === other.message)
        const errors = withoutSecrets(formatter.formatErrors(masked))
        return Console.error(`${errors.trimStart()}\n\n${helpOf(event.helpDoc)}`)
      }
      case "Version":
        return printText(formatter.formatVersion(event.name, event.version))
    }
  }
})

/** Draws a bar of up to 40 columns before the numbers; leaves a column free. `fraction` is from 0 to 1, if known. */
const bar = (numbers: string, fraction: number | undefined, columns: number) => {
  const width = Math.min(40, columns - numbers.length - 4)
  if (fraction === undefined || width < 5) return numbers.slice(0, columns - 1)
  const filled = Math.floor(Math.min(1, fraction) * width)
  return `[${"#".repeat(filled)}${" ".repeat(width - filled)}] ${numbers}`
}

/**
 * Reports progress on standard error: redraws a bar on a terminal, at most ten times a second; elsewhere prints lines,
 * at most one a second. `fractionOf` returns the progress from 0 to 1, if known. `end` shows the last report.
 */
export const makeProgress = Effect.fnUntraced(function* <P>(
  line: (progress: P) => string,
  fractionOf: (progress: P) => number | undefined = () => undefined
) {
  const { stderr: screen } = yield* StandardStreams
  const isTerminal = screen.isTTY === true
  const interval = isTerminal ? 100 : 1000
  let nextAt = 0
  let pending: P | undefined
  let hasShown = false
  const show = (progress: P) => {
    pending = undefined
    hasShown = true
    screen.write(
      isTerminal ? `\r${bar(line(progress), fractionOf(progress), screen.columns || 80)}\x1b[K` : `${line(progress)}\n`
    )
  }
  return {
    report: (progress: P) =>
      Effect.map(Clock.currentTimeMillis, (now) => {
        pending = progress
        if (now < nextAt) return
        nextAt = now + interval
        show(progress)
      }),
    end: Effect.sync(() => {
      if (pending !== undefined) show(pending)
      if (hasShown && isTerminal) screen.write("\n")
    })
  }
})
