import { randomBytes } from "node:crypto"
import { Context, Data, type Effect } from "effect"
import { isKekId, kekIdForm } from "../../domain/KekId.ts"
import { type Kek, makeKek } from "./Kek.ts"

/** The keys of an instance at one moment. The first seals and opens; the others only open: those to come and those to retire. */
export interface Ring {
  readonly primary: Kek | undefined
  readonly byId: ReadonlyMap<string, Kek>
}

/** The keys that this instance uses. They are replaced as a whole: who needs two that fit together asks once. */
export class Keyring extends Context.Service<
  Keyring,
  {
    readonly current: () => Ring
    /** Reads the keys again and uses them from now on; if they are not in order, those of before stay. */
    readonly reload: Effect.Effect<Ring, InvalidKeyring>
  }
>()("byok/Keyring") {}

/** Says which line is wrong and what is expected, never what was found there. */
export class InvalidKeyring extends Data.TaggedError("InvalidKeyring")<{ readonly message: string }> {}

const parseEntry = (text: string, position: number): Kek => {
  const refuse = (found: string) => {
    const message = `key ${position}: expected id:base64 of 32 bytes, with an id of ${kekIdForm}; found ${found}`
    return new InvalidKeyring({ message })
  }
  const [id, base64, more] = text.split(":")
  if (!isKekId(id) || base64 === undefined || more !== undefined) {
    throw refuse(`${text.length} characters of another form`)
  }
  const bytes = Buffer.from(base64, "base64")
  try {
    if (bytes.toString("base64") !== base64) throw refuse("base64 that is not canonical")
    if (bytes.length !== 32) throw refuse(`${bytes.length} bytes`)
    if (bytes.every((byte) => byte === bytes[0])) throw refuse("32 equal bytes")
    return makeKek(id, bytes)
  } finally {
    bytes.fill(0)
  }
}

/** Reads a keyring: one `id:base64` a line, the first is the primary key. Throws `InvalidKeyring`. */
export const parseKeyring = (text: string): Ring => {
  const keks = text
    .split(/\s+/)
    .filter((word) => word !== "")
    .map((word, index) => parseEntry(word, index + 1))
  const byId = new Map(keks.map((kek) => [kek.id, kek]))
  if (byId.size < keks.length) throw new InvalidKeyring({ message: "expected every id once; found one twice" })
  return { primary: keks[0], byId }
}

/** A keyring of one new key, as text. Its id, if none is given, tells the day it was made. */
export const generateKeyring = (
  now: Date,
  id = `kek-${now.toISOString().slice(0, 10)}-${randomBytes(3).toString("hex")}`
): string => {
  const bytes = randomBytes(32)
  const line = `${id}:${bytes.toString("base64")}`
  bytes.fill(0)
  return line
}
