import { DateTime, Schema, SchemaTransformation } from "effect"
import { ApiKeyHash, CredentialId, WorkspaceId } from "./Identifiers.ts"
import { StoredProvider } from "./Provider.ts"
import { Region } from "./Region.ts"

const iso8601 = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/

/** A time as the wire has it: UTC in milliseconds with `Z` (D33). */
export const timestamp = (description: string) =>
  Schema.String.check(
    Schema.isPattern(iso8601, { description, toJsonSchema: () => ({ pattern: iso8601.source, format: "date-time" }) })
  ).pipe(Schema.decodeTo(Schema.DateTimeUtc, SchemaTransformation.dateTimeUtcFromString))

/** A time in milliseconds since 1970. */
export const timeOrNull = (at: number | null) => (at === null ? null : DateTime.makeUnsafe(at))

const orNull = <S extends Schema.Constraint>(schema: S, description: string) =>
  Schema.NullOr(schema).annotate({ description })

const flag = (description: string) => Schema.Boolean.annotate({ description })

/** A credential as responses show it (section 2.1): without the raw key. */
export const Credential = Schema.Struct({
  id: CredentialId,
  workspace_id: WorkspaceId,
  provider: StoredProvider,
  name: orNull(Schema.String, "Human-readable name; null if none was given."),
  label: Schema.String.annotate({ description: "Masked display form of the raw key." }),
  created_at: timestamp("Creation time in UTC, to the millisecond."),
  disabled: flag("Whether the credential is disabled."),
  is_fallback: flag("Used only after the non-fallback credentials of the same provider have been tried."),
  is_required: flag("Shared endpoints of the provider are removed for every model."),
  is_byok_only: flag("Shared endpoints of the provider are removed for the models that the credential applies to."),
  allowed_api_key_hashes: orNull(
    Schema.Array(ApiKeyHash),
    "SHA-256 of each API key that may use the credential; null for no restriction."
  ),
  allowed_models: orNull(
    Schema.Array(Schema.String),
    "Model slugs; null for no restriction, an empty list matches nothing."
  ),
  allowed_user_ids: orNull(
    Schema.Array(Schema.String),
    "User ids; null for no restriction, an empty list matches nothing."
  ),
  declared_region: orNull(Region, "Declared data region; null if none was declared."),
  declared_zdr: orNull(Schema.Boolean, "Declared zero data retention; null to inherit the service's data policy."),
  sort_order: Schema.Int.check(
    Schema.isGreaterThanOrEqualTo(0, {
      description: "Position within workspace and provider: the lowest is tried first; created_at, then id, break ties."
    })
  )
}).annotate({ identifier: "Credential" })
export type Credential = typeof Credential.Type
