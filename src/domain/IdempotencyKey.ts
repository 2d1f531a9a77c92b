import { Schema } from "effect"

const message = "must be 1 to 255 visible ASCII characters, sent once"

/** The client's name for one create, under which it may be sent again. A header sent twice arrives with a blank in it. */
export const IdempotencyKey = Schema.String.annotate({ message })
  .check(
    Schema.isPattern(/^[\x21-\x7e]{1,255}$/u, {
      message,
      description:
        "A name for this request, best a random UUID, under which it may be sent again: unique per account, remembered for at least 24 hours."
    })
  )
  .pipe(Schema.brand("IdempotencyKey"))
export type IdempotencyKey = typeof IdempotencyKey.Type
