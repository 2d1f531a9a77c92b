import { isUtf8 } from "node:buffer"
import { closeSync, openSync } from "node:fs"
import { Effect, Option, Redacted } from "effect"
import {
  createPrivateFile,
  readPrivateBytes,
  readPrivateText,
  refuseShared,
  UnusableFile
} from "../crypto/keyring/SecretFile.ts"
import { type InvalidSetting, refuse, refuseAs } from "./Environment.ts"

const tryToRead = <A>(use: () => A) => Effect.try({ try: use, catch: UnusableFile.cannotBe("read") })

/** Opens a file for reading until the scope closes. Like a keyring file, it must be private. */
export const open = (path: string) =>
  Effect.acquireRelease(
    tryToRead(() => openSync(path, "r")),
    (file) => Effect.sync(() => closeSync(file))
  ).pipe(
    Effect.tap((file) => tryToRead(() => refuseShared(file))),
    refuseAs(path)
  )

/** Reads the text of a private file. */
export const read = (path: string) => refuseAs(path)(readPrivateText(path))

/** Creates a file of mode 0600 atomically; fails if it exists. */
export const create = (path: string, text: string) => refuseAs(path)(createPrivateFile(path, text))

/** Maximum bytes of a secret, the same as of the body of a create request. */
const maxBytes = 256 * 1024

/** Reads to the end, or until there are more bytes than a secret may have. */
const readStandardInput = (name: string, stdin: AsyncIterable<Buffer>) =>
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
  }).pipe(Effect.catch(() => refuse(`${name} on standard input cannot be read.`)))

const decode = (name: string, bytes: Buffer) => {
  if (bytes.length > maxBytes) return refuse(`${name} must have at most 256 KiB.`)
  if (!isUtf8(bytes)) return refuse(`${name} must be UTF-8.`)
  const text = bytes.toString("utf8")
  if (text.includes("\0")) return refuse(`${name} must be UTF-8 without U+0000.`)
  return /[^\r\n\uFEFF]/.test(text) ? Effect.succeed(Redacted.make(text)) : refuse(`${name} must not be empty.`)
}

/** Reads a secret from a private file, or else from standard input. `name` begins the sentence that refuses it. */
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
