import { PgTypes } from "@effect/sql-pg"
import { Result } from "effect"

const textOid = 25

const read = (bytes: Uint8Array, offset: number, size: number) =>
  Buffer.from(bytes.buffer, bytes.byteOffset + offset, size).toString("utf8")

/** The driver's types, except text: its own codec strips a leading byte order mark from some strings. */
export const pgTypes = (): PgTypes.Registry => {
  const types = PgTypes.makeRegistry()
  types.register<string>(textOid, {
    encode: (text) => Result.succeed(Buffer.from(text)),
    decode: (bytes) => Result.succeed(read(bytes, 0, bytes.length)),
    read: (bytes, offset, size) => Result.succeed(read(bytes, offset, size))
  })
  return types
}
