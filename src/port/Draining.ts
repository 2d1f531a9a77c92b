import { Context } from "effect"

/** Whether the service was asked to stop: it is no longer ready, but still answers. */
export const Draining = Context.Reference<() => boolean>("byok/Draining", { defaultValue: () => () => false })
