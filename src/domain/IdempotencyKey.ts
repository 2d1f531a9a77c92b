import { Schema } from "effect"

const message = "must be 1 to 255 visible ASCII characters, sent once"

/** A client's name for one create, which makes it safe to retry. Node joins two such headers with `, `: refused. */
export const IdempotencyKey = Schema.String.annotate({ message })
  .check(
    Schema.isPattern(/^[\x21-\x7e]{1,255}$/u, {
      message,
      description:
        "A name for this request that makes it safe to retry, ideally a random UUID: unique per account, remembered for at least 24 hours."
    })
  )
  .pipe(Schema.brand("IdempotencyKey"))
export type IdempotencyKey = typeof IdempotencyKey.Type
