const base64At = (offset: number, bytes: Buffer): string => {
  const text = Buffer.concat([Buffer.alloc(offset), bytes]).toString("base64")
  return text.slice(Math.ceil((offset * 8) / 6), Math.floor(((offset + bytes.length) * 8) / 6))
}

/**
 * How bytes may lie in a text, a table or a file: as they are and reversed, each plain, in hexadecimal and in base64 at
 * its three offsets; and as a part of a URL.
 */
export const formsOf = (bytes: Buffer): ReadonlyArray<string> => {
  const both = [bytes, Buffer.from(bytes).reverse()]
  const base64 = both.flatMap((given) => [0, 1, 2].map((offset) => base64At(offset, given)))
  const forms = [
    ...both.flatMap((given) => [given.toString("latin1"), given.toString("hex")]),
    ...base64,
    ...base64.map((text) => text.replaceAll("+", "-").replaceAll("/", "_")),
    encodeURIComponent(bytes.toString("latin1"))
  ]
  return Array.from(new Set(forms))
}
