export { labelOf } from "./labelOf.js"

/**
 * Matches a label that cannot rule out a secret: it hides everything, or it may be that of JSON, which can have the
 * secret inside. JSON with text in it starts and ends with a bracket, a brace or a quotation mark, or with white space,
 * which a label masks. The source means the same to PostgreSQL.
 */
export const inconclusiveLabel = /^[*{["].*([*}"]|\])$/
