import { DateTime } from "effect"
import type { Credential } from "../domain/Credential.ts"

/**
 * A credential as the contract's schema encodes it: one pass over the sixteen members instead of an interpretation of
 * the schema for every answer.
 */
const credentialJson = (credential: Credential): { readonly [Member in keyof Credential]: unknown } => ({
  id: credential.id,
  workspace_id: credential.workspace_id,
  provider: credential.provider,
  name: credential.name,
  label: credential.label,
  created_at: DateTime.formatIso(credential.created_at),
  disabled: credential.disabled,
  is_fallback: credential.is_fallback,
  is_required: credential.is_required,
  is_byok_only: credential.is_byok_only,
  allowed_api_key_hashes: credential.allowed_api_key_hashes,
  allowed_models: credential.allowed_models,
  allowed_user_ids: credential.allowed_user_ids,
  declared_region: credential.declared_region,
  declared_zdr: credential.declared_zdr,
  sort_order: credential.sort_order
})

/** The body of an answer with one credential. */
export const credentialBody = (credential: Credential): string => JSON.stringify({ data: credentialJson(credential) })

/** The body of an answer with a page of credentials. */
export const credentialListBody = (credentials: ReadonlyArray<Credential>, total_count: number): string =>
  JSON.stringify({ data: credentials.map(credentialJson), total_count })
