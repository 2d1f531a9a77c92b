import { Effect, Result, Schema, SchemaIssue, SchemaTransformation, Struct } from "effect"
import { issuesOf } from "./Issue.ts"
import { parseRsaKey, type RsaKey, rsaKeyRule } from "./RsaKey.ts"

/** The schema of a member that becomes part of a host, path or signature, so its form is checked. */
const member = (form: RegExp, message: string) =>
  Schema.String.annotate({ message }).check(Schema.isPattern(form, { message }))

const visibleAscii = member(/^[!-~]+$/, "must be text of visible ASCII characters")
const projectId = member(/^[a-z0-9]([a-z0-9.:-]{0,62}[a-z0-9])?$/, "must be the id of a project")
const bucket = member(/^[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]$/, "must be the name of a bucket")

/** A private RSA key in PEM, decoded to one that is safe to compute with. */
const RsaKeyInPem = Schema.String.annotate({ message: rsaKeyRule }).pipe(
  Schema.decodeTo<Schema.Codec<RsaKey>, typeof Schema.String>(
    Schema.Any,
    SchemaTransformation.transformEffect({
      decode: (pem) =>
        Effect.mapError(Effect.fromResult(parseRsaKey(pem)), (message) => new SchemaIssue.InvalidValue({ message })),
      encode: (): Effect.Effect<string> => Effect.die(new Error("No RSA key is encoded"))
    })
  )
)

/** The id of an access key of AWS: AKIA for a user, ASIA for a session. */
const accessKeyId = /^(AKIA|ASIA)[A-Z2-7]{16}$/

/** An AWS access key, which signs tokens for Bedrock. */
const BedrockKey = Schema.Struct({
  accessKeyId: member(accessKeyId, "must be the id of an access key: AKIA or ASIA, then 16 of A to Z and 2 to 7"),
  secretAccessKey: visibleAscii.check(
    Schema.makeFilter((secret) => !accessKeyId.test(secret), {
      message: "must not be the id of an access key: the two may be swapped"
    })
  ),
  sessionToken: Schema.optionalKey(visibleAscii),
  region: member(/^[a-z]{2,4}(-[a-z]{2,12}){1,3}-\d{1,2}$/, "must be a region such as us-east-1")
}).check(
  Schema.makeFilter(({ accessKeyId, sessionToken }) =>
    accessKeyId.startsWith("ASIA") && sessionToken === undefined
      ? { path: ["sessionToken"], issue: "is required with an accessKeyId that begins with ASIA" }
      : undefined
  )
)
export type BedrockKey = typeof BedrockKey.Type

/** A Google Cloud service account, which signs tokens for Vertex. Ignores `token_uri`, which the tenant chooses. */
const VertexKey = Schema.Struct({
  client_email: visibleAscii,
  private_key_id: visibleAscii,
  private_key: RsaKeyInPem,
  project_id: Schema.optionalKey(projectId),
  region: Schema.optionalKey(member(/^[a-z]{2,12}(-[a-z]{2,12}\d{1,2})?$/, "must be a region such as us-central1")),
  bucket: Schema.optionalKey(bucket)
})
export type VertexKey = typeof VertexKey.Type

export type CloudKey = BedrockKey | VertexKey

/** The public members of a stored key that a gateway needs in addition to a token. */
export type CloudDetails = Partial<Pick<VertexKey, "project_id" | "region" | "bucket">>

type Decode = (json: unknown) => Result.Result<CloudKey, Schema.SchemaError>
const decodeBedrock: Decode = Schema.decodeUnknownResult(BedrockKey, { errors: "all" })
const decodeVertex: Decode = Schema.decodeUnknownResult(VertexKey, { errors: "all" })

/** Decodes a key that signs tokens (D57). Fails with one sentence per invalid member; an empty one for a non-object. */
export const decodeCloudKey = (provider: string, json: unknown): Result.Result<CloudKey, ReadonlyArray<string>> =>
  Result.mapError((provider === "google-vertex" ? decodeVertex : decodeBedrock)(json), ({ issue }) =>
    issuesOf(issue).map(({ message, path: [name] }) => (name === undefined ? "" : `${name} ${message}`))
  )

/**
 * The forms of API keys of Bedrock and Vertex, which the process hands out as they are. Bedrock's are a long-term key or a
 * token signed elsewhere, Vertex's a standard key or one bound to a service account.
 */
const apiKey = /^(ABSK|bedrock-api-key-|AIza|AQ\.)[\w+/=.-]+$/

/** Whether a plain key for Amazon Bedrock or Google Vertex has the form of one of their API keys. */
export const isCloudApiKey = (text: string): boolean => apiKey.test(text)

/** An id of an access key, a private key, or the file of a service account, anywhere in a text. */
const partsOfCloudKeys =
  /(?<![A-Za-z0-9])(AKIA|ASIA)[A-Z2-7]{16}(?![A-Za-z0-9])|-----BEGIN [A-Z ]*PRIVATE KEY-----|"service_account"/

/** The text that Base64 stands for; empty for other texts. */
const decodedBase64 = (text: string) =>
  /^[\w+/-]+=*$/.test(text)
    ? Result.getOrElse(
        Result.try(() => atob(text.replaceAll("-", "+").replaceAll("_", "/"))),
        () => ""
      )
    : ""

/** Whether a text of any form contains a cloud key, also in Base64. */
export const containsCloudKey = (text: string): boolean =>
  partsOfCloudKeys.test(text) || partsOfCloudKeys.test(decodedBase64(text))

/** The public id in a cloud key, from which its label is made (D56). */
export const publicIdOf = (key: CloudKey): string => ("accessKeyId" in key ? key.accessKeyId : key.private_key_id)

export const cloudDetailsOf = (key: CloudKey): CloudDetails =>
  "accessKeyId" in key ? { region: key.region } : Struct.omit(key, ["client_email", "private_key", "private_key_id"])
