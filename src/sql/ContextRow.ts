import { Schema } from "effect"
import { Credential } from "../domain/Credential.ts"
import { AccountId } from "../domain/Identifiers.ts"

/** The columns of the sealing context. */
export const ContextRow = Schema.Struct({ account_id: AccountId, ...Credential.fields }).mapFields(
  ({ created_at: _created_at, label: _label, name: _name, sort_order: _sort_order, ...bound }) => bound
)
