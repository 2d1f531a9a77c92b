import { Schema } from "effect"
import { ApiKeyHash } from "./ApiKeyHash.ts"
import { CredentialId } from "./CredentialId.ts"
import { Provider } from "./Provider.ts"
import { Region } from "./Region.ts"
import { WorkspaceId } from "./WorkspaceId.ts"

/** What responses show (section 2.1). The raw key is not hidden in it: it is absent. */
export const Credential = Schema.Struct({
  id: CredentialId,
  workspace_id: WorkspaceId,
  provider: Provider,
  name: Schema.NullOr(Schema.String),
  label: Schema.String.annotateKey({ description: "Masked display form of the raw key." }),
  created_at: Schema.DateTimeUtcFromString.annotateKey({ description: "UTC, in milliseconds." }),
  disabled: Schema.Boolean,
  is_fallback: Schema.Boolean,
  is_required: Schema.Boolean,
  is_byok_only: Schema.Boolean,
  allowed_api_key_hashes: Schema.NullOr(Schema.Array(ApiKeyHash)),
  allowed_models: Schema.NullOr(Schema.Array(Schema.String)),
  allowed_user_ids: Schema.NullOr(Schema.Array(Schema.String)),
  declared_region: Schema.NullOr(Region),
  declared_zdr: Schema.NullOr(Schema.Boolean),
  sort_order: Schema.Int.annotateKey({
    description:
      "Position within workspace and provider, in ascending order of trial; created_at, then id, break a tie."
  })
}).annotate({ identifier: "Credential" })
export type Credential = typeof Credential.Type
