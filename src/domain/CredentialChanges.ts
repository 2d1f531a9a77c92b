import { Schema } from "effect"
import { credentialFields } from "./credentialFields.ts"

const fields = credentialFields({})

/**
 * The input of update: a member that is absent stays as it is, `null` clears it where it may be null, and a list
 * replaces. Any other member of the body is ignored (L1). The rules across members apply to the changed credential.
 */
export const CredentialChanges = Schema.Struct({
  key: Schema.optionalKey(fields.key),
  name: Schema.optionalKey(fields.name),
  allowed_api_key_hashes: Schema.optionalKey(fields.allowed_api_key_hashes),
  allowed_models: Schema.optionalKey(fields.allowed_models),
  allowed_user_ids: Schema.optionalKey(fields.allowed_user_ids),
  declared_region: Schema.optionalKey(fields.declared_region),
  declared_zdr: Schema.optionalKey(fields.declared_zdr),
  disabled: Schema.optionalKey(fields.disabled),
  is_required: Schema.optionalKey(fields.is_required),
  is_fallback: Schema.optionalKey(fields.is_fallback),
  is_byok_only: Schema.optionalKey(fields.is_byok_only)
}).annotate({ identifier: "CredentialChanges" })
export type CredentialChanges = typeof CredentialChanges.Type
