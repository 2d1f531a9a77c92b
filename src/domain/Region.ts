import { Schema } from "effect"

/** The data region that a credential's owner declares (section 4.1, `declared_region`). */
export const Region = Schema.Literals(["global", "europe", "us"]).annotate({
  message: "must be global, europe, us or null"
})
export type Region = typeof Region.Type
