import { Data } from "effect"

/** An argument has the wrong form. The message says which one and what is expected, never what was given. */
export class UsageError extends Data.TaggedError("UsageError")<{ readonly message: string }> {}
