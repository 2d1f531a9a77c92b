import type { Credential } from "./Credential.ts"
import type { AccountId } from "./Identifiers.ts"

/** A provider key at rest: sealed under its own data key (DEK), which is wrapped by the key-encryption key `kek_id`. */
export interface SealedKey {
  readonly kek_id: string
  readonly wrapped_dek: Uint8Array
  readonly sealed: Uint8Array
}

/** What a sealed key is bound to: every field that decides where and for whom it may be used. */
export type SealingContext = Omit<Credential, "name" | "label" | "sort_order" | "created_at"> & {
  readonly account_id: AccountId
}

/** The canonical encoding that sealing format 1 authenticates: if a bound field changes, the key no longer opens. */
export const encodeSealingContext = (context: SealingContext): string =>
  JSON.stringify([
    "byok/credential/1",
    context.account_id,
    context.workspace_id,
    context.id,
    context.provider,
    context.disabled,
    context.is_fallback,
    context.is_required,
    context.is_byok_only,
    context.allowed_api_key_hashes,
    context.allowed_models,
    context.allowed_user_ids,
    context.declared_region,
    context.declared_zdr
  ])
