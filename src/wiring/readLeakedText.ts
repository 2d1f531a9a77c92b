import { Data, Effect, Option, Redacted } from "effect"
import { readPrivateBytes } from "../crypto/keyring/SecretFile.ts"

/** Leaked text that cannot be searched for. Says what was expected, never what was given. */
export class UnusableLeakedText extends Data.TaggedError("UnusableLeakedText")<{ readonly message: string }> {}

/** As much as a create may have in its body. */
const maxBytes = 256 * 1024

const refuse = (expected: string) => new UnusableLeakedText({ message: `The leaked text ${expected}.` })

/** Reads to the end, or until there is too much. */
const readStandardInput = (stdin: AsyncIterable<Buffer>) =>
  Effect.tryPromise({
    try: async (): Promise<Buffer> => {
      const parts: Array<Buffer> = []
      let length = 0
      for await (const part of stdin) {
        parts.push(part)
        length += part.length
        if (length > maxBytes) break
      }
      const whole = Buffer.concat(parts)
      for (const part of parts) part.fill(0)
      return whole
    },
    catch: () => refuse("on standard input cannot be read")
  })

const decode = (bytes: Buffer) => {
  if (bytes.length > maxBytes) return Effect.fail(refuse("must have at most 256 KiB"))
  return Effect.try({
    try: () => new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes),
    catch: () => refuse("must be UTF-8")
  }).pipe(
    Effect.filterOrFail(
      (text) => !text.includes("\0"),
      () => refuse("must be UTF-8 without U+0000")
    ),
    Effect.filterOrFail(
      (text) => /[^\r\n\uFEFF]/.test(text),
      () => refuse("must not be empty")
    ),
    Effect.map((text) => Redacted.make(text))
  )
}

const readFile = (path: string) =>
  Effect.mapError(readPrivateBytes(path), ({ message }) => new UnusableLeakedText({ message: `--file: ${message}.` }))

/** Reads leaked text from a private file, or from standard input if none is named. */
export const readLeakedText = (
  file: Option.Option<string>,
  stdin: AsyncIterable<Buffer>
): Effect.Effect<Redacted.Redacted, UnusableLeakedText> =>
  Effect.flatMap(Option.isSome(file) ? readFile(file.value) : readStandardInput(stdin), (bytes) =>
    Effect.ensuring(
      decode(bytes),
      Effect.sync(() => bytes.fill(0))
    )
  )
