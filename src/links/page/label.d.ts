export * from "../../domain/labelOf.js"
