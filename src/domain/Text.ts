import { Schema } from "effect"

/** Text that UTF-8 and PostgreSQL preserve: no U+0000 and no lone surrogate (D25). */
export const Text = Schema.String.annotate({ message: "must be a string" }).check(
  Schema.makeFilter((text: string) => !text.includes("\0") && text.isWellFormed(), {
    message: "must not contain U+0000 or half of a surrogate pair"
  })
)
