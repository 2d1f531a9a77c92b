/** The modules that other packages and `src/domain` provide to the page, by the names under which it gets them. */
declare module "*/hpke.js" {
  export * from "hpke"
}
declare module "*/preact.js" {
  export * from "htm/preact/standalone"
}
declare module "*/label.js" {
  export const labelOf: typeof import("../../domain/labelOf.js").labelOf
}
