import type { CredentialId } from "../domain/Identifiers.ts"

const resource = /^\/api\/v1\/byok\/([0-9a-f]{8}-[0-9a-f]{4}-[1-8][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12})(?:\?|$)/i

/** The credential that a request reads, if its path has the form of one: known before anything is decoded. */
export const requestedCredentialId = (method: string, url: string): CredentialId | undefined =>
  method === "GET" || method === "HEAD"
    ? (resource.exec(url)?.[1]?.toLowerCase() as CredentialId | undefined)
    : undefined
