const base64At = (offset: number, secret: Buffer): string => {
  const text = Buffer.concat([Buffer.alloc(offset), secret]).toString("base64")
  return text.slice(Math.ceil((offset * 8) / 6), Math.floor(((offset + secret.length) * 8) / 6))
}

/** How a secret may lie in a file, a table or a log: as it is, in base64 at each of its three offsets, in hexadecimal. */
export const formsOf = (secret: string): ReadonlyArray<string> => {
  const bytes = Buffer.from(secret)
  const base64 = [0, 1, 2].map((offset) => base64At(offset, bytes))
  return [
    secret,
    ...base64,
    ...base64.map((text) => text.replaceAll("+", "-").replaceAll("/", "_")),
    bytes.toString("hex")
  ]
}
