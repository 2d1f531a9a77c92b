import { Schema } from "effect"
import { uuid } from "./Uuid.ts"

export const AccountId = uuid("Identifier of the account.").pipe(Schema.brand("AccountId"))
export type AccountId = typeof AccountId.Type
