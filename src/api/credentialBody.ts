import { DateTime } from "effect"
import { type Credential, membersOf } from "../domain/Credential.ts"

/** A credential as the contract's schema encodes it, without an interpretation of the schema for every answer. */
const credentialJson = (credential: Credential) =>
  Object.assign(membersOf<unknown>(credential), { created_at: DateTime.formatIso(credential.created_at) })

export const credentialBody = (credential: Credential): string => JSON.stringify({ data: credentialJson(credential) })

export const credentialListBody = (credentials: ReadonlyArray<Credential>, total_count: number): string =>
  JSON.stringify({ data: credentials.map(credentialJson), total_count })
