import type { Credential } from "../domain/Credential.ts"
import { credentialJson } from "./credentialJson.ts"

/** The body of an answer with one credential. */
export const credentialBody = (credential: Credential): string => JSON.stringify({ data: credentialJson(credential) })
