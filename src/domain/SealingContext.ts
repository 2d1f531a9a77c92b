import type { Credential } from "./Credential.ts"
import type { AccountId } from "./Identifiers.ts"

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
