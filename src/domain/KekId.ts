import { Schema } from "effect"

/** What the id of a key-encryption key is, in words. */
export const kekIdForm = "1 to 64 characters of A-Z a-z 0-9 . _ -"

/** The id of a key-encryption key, as keyrings, tokens and rows name it. */
export const KekId = Schema.String.check(Schema.isPattern(/^[A-Za-z0-9._-]{1,64}$/u))

export const isKekId = Schema.is(KekId)
