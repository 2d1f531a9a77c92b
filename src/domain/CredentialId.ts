import { Schema } from "effect"
import { uuid } from "./Uuid.ts"

export const CredentialId = uuid("Identifier of the credential.").pipe(Schema.brand("CredentialId"))
export type CredentialId = typeof CredentialId.Type
