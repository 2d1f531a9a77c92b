/** The types of `label.js`, the name under which the page gets `src/domain/labelOf.js`. */
export * from "../../domain/labelOf.js"
