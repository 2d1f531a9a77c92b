import { DateTime, Schema } from "effect"
import { type Credential, membersOf } from "../domain/Credential.ts"
import { CredentialStatus } from "../domain/routing/CredentialStatus.ts"

/** A credential as the contract's schema encodes it, without an interpretation of the schema for every answer. */
const credentialJson = (credential: Credential) =>
  Object.assign(membersOf<unknown>(credential), { created_at: DateTime.formatIso(credential.created_at) })

export const credentialBody = (credential: Credential): string => JSON.stringify({ data: credentialJson(credential) })

const encodeStatus = Schema.encodeUnknownSync(Schema.NullOr(CredentialStatus))

export const credentialListBody = (
  credentials: ReadonlyArray<Credential>,
  total_count: number,
  statuses?: ReadonlyArray<CredentialStatus | null>
): string => {
  const data = credentials.map((credential, index) =>
    statuses === undefined
      ? credentialJson(credential)
      : { ...credentialJson(credential), status: encodeStatus(statuses[index]) }
  )
  return JSON.stringify({ data, total_count })
}
