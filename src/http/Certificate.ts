/** A certificate, with the chain below it, and its private key, both in PEM. */
export interface Certificate {
  readonly cert: string
  readonly key: string
}
