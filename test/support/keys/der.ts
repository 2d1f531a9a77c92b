/** A DER value: its tag, its length in the fewest bytes, and its parts. */
export const tagged = (tag: number, ...parts: ReadonlyArray<Uint8Array>): Buffer => {
  const body = Buffer.concat(parts)
  const size = Buffer.from(body.length.toString(16).padStart(6, "0"), "hex")
  const digits = size.subarray(size.findIndex((byte) => byte > 0))
  const length = body.length < 128 ? [body.length] : [0x80 + digits.length, ...digits]
  return Buffer.concat([Buffer.of(tag, ...length), body])
}

export const sequence = (...parts: ReadonlyArray<Uint8Array>) => tagged(0x30, ...parts)

export const identifier = (...bytes: ReadonlyArray<number>) => tagged(0x06, Buffer.of(...bytes))

/** A positive INTEGER of big-endian bytes, which get a zero before them where the first would make it negative. */
export const integer = (bytes: Uint8Array) => {
  const digits = bytes.subarray(
    Math.max(
      0,
      bytes.findIndex((byte) => byte > 0)
    )
  )
  return tagged(0x02, Buffer.alloc((digits[0] ?? 0) >> 7), digits)
}

export const pem = (name: string, der: Uint8Array) =>
  `-----BEGIN ${name}-----\n${Buffer.from(der)
    .toString("base64")
    .replace(/.{64}(?=.)/g, "$&\n")}\n-----END ${name}-----\n`
