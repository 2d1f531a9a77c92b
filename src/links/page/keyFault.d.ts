/** The types of `keyFault.js`, which the page gets from `src/domain`. */
export * from "../../domain/keyFault.js"
