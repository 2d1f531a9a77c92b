export { labelOf } from "./labelOf.js"

/**
 * Matches labels that cannot rule out that their key contains a leaked secret. A fully masked label shows no character of the
 * key. A label of JSON, which begins and ends with a bracket, brace, quotation mark or mask, may hide further secrets.
 * PostgreSQL reads the pattern in the same way.
 */
export const inconclusiveLabel = /^[*{["].*([*}"]|\])$/
