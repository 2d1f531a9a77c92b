import { Context } from "effect"

/** Whether each request is a line in the log. */
export const AccessLog = Context.Reference<boolean>("byok/AccessLog", { defaultValue: () => false })
