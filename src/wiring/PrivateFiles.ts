import { isUtf8 } from "node:buffer"
import { closeSync, openSync } from "node:fs"
import { Effect, Option, Redacted } from "effect"
import { writeKeyringFile } from "../crypto/keyring/KeyringFile.ts"
import { readPrivateBytes, readPrivateFile, refuseShared, UnusableFile } from "../crypto/keyring/SecretFile.ts"
import { type InvalidSetting, refuse, refuseAs } from "./Environment.ts"

const attempt = <A>(use: () => A) => Effect.try({ try: use, catch: UnusableFile.to("read") })

/** Opens a file for reading until the scope closes, under the rule for keyring files: nobody else may read it. */
export const open = (path: string) =>
  Effect.acquireRelease(
    attempt(() => openSync(path, "r")),
    (file) => Effect.sync(() => closeSync(file))
  ).pipe(
    Effect.tap((file) => attempt(() => refuseShared(file))),
    refuseAs(path)
  )

/** Reads a file under the same rule. */
export const read = (path: string) => refuseAs(path)(readPrivateFile(path))

/** Creates a file of mode 0600, complete or not at all; fails if there is one. */
export const create = (path: string, text: string) => refuseAs(path)(writeKeyringFile(path, text))

/** As much as a create may have in its body. */
const maxBytes = 256 * 1024

/** Reads to the end, or until there is too much. */
const readStandardInput = (what: string, stdin: AsyncIterable<Buffer>) =>
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
  }).pipe(Effect.catch(() => refuse(`${what} on standard input cannot be read.`)))

const decode = (what: string, bytes: Buffer) => {
  if (bytes.length > maxBytes) return refuse(`${what} must have at most 256 KiB.`)
  if (!isUtf8(bytes)) return refuse(`${what} must be UTF-8.`)
  const text = bytes.toString("utf8")
  if (text.includes("\0")) return refuse(`${what} must be UTF-8 without U+0000.`)
  return /[^\r\n\uFEFF]/.test(text) ? Effect.succeed(Redacted.make(text)) : refuse(`${what} must not be empty.`)
}

/** Reads a secret from a private file, or from standard input if none is named. `what` begins the sentence that refuses it. */
export const readSecretText = (
  what: string,
  file: Option.Option<string>,
  stdin: AsyncIterable<Buffer>
): Effect.Effect<Redacted.Redacted, InvalidSetting> => {
  const read = Option.isSome(file) ? refuseAs("--file")(readPrivateBytes(file.value)) : readStandardInput(what, stdin)
  return Effect.flatMap(read, (bytes) =>
    Effect.ensuring(
      decode(what, bytes),
      Effect.sync(() => bytes.fill(0))
    )
  )
}
