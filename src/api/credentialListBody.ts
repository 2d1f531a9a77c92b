import type { Credential } from "../domain/Credential.ts"
import { credentialJson } from "./credentialJson.ts"

/** The body of an answer with a page of credentials. */
export const credentialListBody = (credentials: ReadonlyArray<Credential>, total_count: number): string =>
  JSON.stringify({ data: credentials.map(credentialJson), total_count })
