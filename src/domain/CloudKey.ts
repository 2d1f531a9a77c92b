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

/** An AWS access key, which signs tokens for Bedrock. */
const BedrockKey = Schema.Struct({
  accessKeyId: visibleAscii,
  secretAccessKey: visibleAscii,
  sessionToken: Schema.optionalKey(visibleAscii),
  region: member(/^[a-z]{2,4}(-[a-z]{2,12}){1,3}-\d{1,2}$/, "must be a region such as us-east-1")
})
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

/** The public id in a cloud key, from which its label is made (D56). */
export const publicIdOf = (key: CloudKey): string => ("accessKeyId" in key ? key.accessKeyId : key.private_key_id)

export const cloudDetailsOf = (key: CloudKey): CloudDetails =>
  "accessKeyId" in key ? { region: key.region } : Struct.omit(key, ["client_email", "private_key", "private_key_id"])
