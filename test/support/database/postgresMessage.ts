/** A message of PostgreSQL's protocol: its type, its length and what it says. */
export const postgresMessage = (type: string, body: Buffer) => {
  const head = Buffer.alloc(5)
  head.write(type)
  head.writeInt32BE(body.length + 4, 1)
  return Buffer.concat([head, body])
}
