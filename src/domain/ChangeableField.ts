import { Schema } from "effect"

/** The members that an update can change. */
export const ChangeableField = Schema.Literals([
  "key",
  "name",
  "disabled",
  "is_fallback",
  "is_required",
  "is_byok_only",
  "allowed_api_key_hashes",
  "allowed_models",
  "allowed_user_ids",
  "declared_region",
  "declared_zdr"
])
export type ChangeableField = typeof ChangeableField.Type
