export { labelOf } from "./labelOf.js"

/**
 * Matches a label that does not show whether its key contains a certain secret: the label is fully masked, or the key may
 * be JSON, whose label begins and ends with a bracket, brace, quotation mark or mask. The pattern means the same in
 * PostgreSQL.
 */
export const inconclusiveLabel = /^[*{["].*([*}"]|\])$/
