import { Context } from "effect"

/** How many requests may wait for the database before more are refused (D14). */
export const QueueLimit = Context.Reference("byok/QueueLimit", { defaultValue: () => 2000 })
