import { Schema } from "effect"

/** The form of a `KekId` in words, for messages. */
export const kekIdForm = "1 to 64 characters of A-Z a-z 0-9 . _ -"

/** The id of a key-encryption key (KEK) in keyrings, on PKCS#11 tokens and in rows. */
export const KekId = Schema.String.check(Schema.isPattern(/^[A-Za-z0-9._-]{1,64}$/u))

export const isKekId = Schema.is(KekId)
