import { Data } from "effect"

/** A setting is wrong or missing. The message names it and never contains its value. */
export class InvalidSetting extends Data.TaggedError("InvalidSetting")<{ readonly message: string }> {}
