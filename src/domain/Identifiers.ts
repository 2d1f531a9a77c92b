import { Schema, SchemaTransformation } from "effect"

/** The UUIDs that `Schema.isUUID` accepts, in lowercase: versions 1 to 8, nil and max (RFC 9562). */
const lowercaseUuid =
  /^(?:[0-9a-f]{8}-[0-9a-f]{4}-[1-8][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}|0{8}(?:-0{4}){3}-0{12}|f{8}(?:-f{4}){3}-f{12})$/

const message = "must be a UUID"

/** A UUID in either case, decoded to the lowercase form that sealed keys are bound to. */
const uuid = (description: string) =>
  Schema.String.annotate({ message })
    .check(Schema.isUUID(undefined, { message, description }))
    .pipe(
      Schema.decodeTo(
        Schema.String.check(Schema.isPattern(lowercaseUuid, { message })),
        SchemaTransformation.transform({ decode: (text) => text.toLowerCase(), encode: (text) => text })
      )
    )

export const AccountId = uuid("Identifier of the account.").pipe(Schema.brand("AccountId"))
export type AccountId = typeof AccountId.Type

export const WorkspaceId = uuid(
  "Workspace the credential is scoped to. When omitted at creation, the default workspace of the account."
).pipe(Schema.brand("WorkspaceId"))
export type WorkspaceId = typeof WorkspaceId.Type

export const CredentialId = uuid("Identifier of the credential.").pipe(Schema.brand("CredentialId"))
export type CredentialId = typeof CredentialId.Type

export const LinkId = uuid("Identifier of the link.").pipe(Schema.brand("LinkId"))
export type LinkId = typeof LinkId.Type

/** Identifies a credential. */
export interface CredentialReference {
  readonly account_id: AccountId
  readonly credential_id: CredentialId
}

/** SHA-256 of a whole API key as UTF-8, in lowercase hexadecimal: the only form in which API keys are stored (D24). */
export const ApiKeyHash = Schema.String.annotate({ message: "must be a string" })
  .check(Schema.isPattern(/^[a-f0-9]{64}$/u, { message: "must be 64 lowercase hexadecimal characters" }))
  .pipe(Schema.brand("ApiKeyHash"))
export type ApiKeyHash = typeof ApiKeyHash.Type

/** The form of a `KekId`, for messages. */
export const kekIdForm = "1 to 64 characters of A-Z a-z 0-9 . _ -"

/** The id of a key-encryption key (KEK) in keyrings and in rows. */
export const KekId = Schema.String.check(Schema.isPattern(/^[A-Za-z0-9._-]{1,64}$/u))

export const isKekId = Schema.is(KekId)

const visibleAsciiMessage = "must be 1 to 255 visible ASCII characters, sent once"

/** A client's name for one create, which makes retries safe. No blanks: Node joins repeated headers by `, `. */
export const IdempotencyKey = Schema.String.annotate({ message: visibleAsciiMessage })
  .check(
    Schema.isPattern(/^[\x21-\x7e]{1,255}$/u, {
      message: visibleAsciiMessage,
      description:
        "A name for this request that makes it safe to retry, ideally a random UUID: unique per account, remembered for at least 24 hours."
    })
  )
  .pipe(Schema.brand("IdempotencyKey"))
export type IdempotencyKey = typeof IdempotencyKey.Type
