export { labelOf } from "./labelOf.js"

/**
 * Matches a label that cannot rule out a secret: it hides everything, or may be that of JSON, whose first and last
 * characters are brackets, braces, quotation marks or masked white space. PostgreSQL reads the source alike.
 */
export const inconclusiveLabel = /^[*{["].*([*}"]|\])$/
