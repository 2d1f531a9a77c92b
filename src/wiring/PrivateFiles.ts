import { isUtf8 } from "node:buffer"
import { closeSync } from "node:fs"
import { Effect, Option, Redacted } from "effect"
import {
  createPrivateFile,
  openPrivate,
  readPrivateBytes,
  readPrivateText,
  UnusableFile
} from "../runtime/SecretFile.ts"
import { type InvalidSetting, refuse, refuseAs } from "./Environment.ts"

/** Opens a private file for reading; returns its descriptor, which is closed with the scope. */
export const open = (path: string) =>
  Effect.acquireRelease(Effect.try({ try: () => openPrivate(path), catch: UnusableFile.cannotBe("read") }), (file) =>
    Effect.sync(() => closeSync(file))
  ).pipe(refuseAs(path))

/** Reads a file as UTF-8; fails unless it is private, like a keyring file. */
export const read = (path: string) => refuseAs(path)(readPrivateText(path))

/** Atomically creates a file of mode 0600 with `text` and a line end; fails if `path` exists. */
export const create = (path: string, text: string) => refuseAs(path)(createPrivateFile(path, text))

/** Maximum bytes of a secret, as for the body of a request over HTTP. */
const maxBytes = 256 * 1024

/** Reads to the end, but stops when there are more bytes than a secret may have. Wipes the chunks. */
const readStandardInput = (name: string, stdin: AsyncIterable<Buffer>) =>
  Effect.tryPromise(async () => {
    const chunks: Array<Buffer> = []
    let length = 0
    for await (const chunk of stdin) {
      chunks.push(chunk)
      length += chunk.length
      if (length > maxBytes) break
    }
    const whole = Buffer.concat(chunks)
    for (const chunk of chunks) chunk.fill(0)
    return whole
  }).pipe(Effect.catch(() => refuse(`${name} on standard input cannot be read.`)))

const decode = (name: string, bytes: Buffer) => {
  if (bytes.length > maxBytes) return refuse(`${name} must have at most 256 KiB.`)
  if (!isUtf8(bytes)) return refuse(`${name} must be UTF-8.`)
  const text = bytes.toString("utf8")
  if (text.includes("\0")) return refuse(`${name} must be UTF-8 without U+0000.`)
  // A byte order mark and line ends alone are no secret.
  return /[^\r\n\uFEFF]/.test(text) ? Effect.succeed(Redacted.make(text)) : refuse(`${name} must not be empty.`)
}

/** Reads a secret from the private file, if one is set, else from `stdin`. `name` begins the sentence of a refusal. */
export const readSecretText = (
  name: string,
  file: Option.Option<string>,
  stdin: AsyncIterable<Buffer>
): Effect.Effect<Redacted.Redacted, InvalidSetting> => {
  const source = Option.isSome(file) ? refuseAs("--file")(readPrivateBytes(file.value)) : readStandardInput(name, stdin)
  return Effect.flatMap(source, (bytes) =>
    Effect.ensuring(
      decode(name, bytes),
      Effect.sync(() => bytes.fill(0))
    )
  )
}
