export * from "hpke"
