import { isUtf8 } from "node:buffer"
import { Data, Effect, Option, Redacted } from "effect"
import { readPrivateBytes } from "../crypto/keyring/SecretFile.ts"

/** Leaked text that cannot be searched for. Says what was expected, never what was given. */
class UnusableLeakedText extends Data.TaggedError("UnusableLeakedText")<{ readonly message: string }> {}

/** As much as a create may have in its body. */
const maxBytes = 256 * 1024

const refuse = (expected: string) => Effect.fail(new UnusableLeakedText({ message: `The leaked text ${expected}.` }))

/** Reads to the end, or until there is too much. */
const readStandardInput = (stdin: AsyncIterable<Buffer>) =>
  Effect.tryPromise(async () => {
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
  }).pipe(Effect.catch(() => refuse("on standard input cannot be read")))

const decode = (bytes: Buffer) => {
  if (bytes.length > maxBytes) return refuse("must have at most 256 KiB")
  if (!isUtf8(bytes)) return refuse("must be UTF-8")
  const text = bytes.toString("utf8")
  if (text.includes("\0")) return refuse("must be UTF-8 without U+0000")
  return /[^\r\n\uFEFF]/.test(text) ? Effect.succeed(Redacted.make(text)) : refuse("must not be empty")
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
