import { Data } from "effect"

/** A key is in no state for what was asked; nothing was changed. */
export class KeyringRefusal extends Data.TaggedError("KeyringRefusal")<{ readonly message: string }> {}
