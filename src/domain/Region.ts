import { Schema } from "effect"

/** Where a credential may be used, as its owner declares (section 4.1, `declared_region`). */
export const Region = Schema.Literals(["global", "europe", "us"]).annotate({
  message: "must be global, europe, us or null"
})
export type Region = typeof Region.Type
