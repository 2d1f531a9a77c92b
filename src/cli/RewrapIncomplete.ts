import { Data } from "effect"

/** Some credentials still name another key than the primary one. */
export class RewrapIncomplete extends Data.TaggedError("RewrapIncomplete")<{ readonly message: string }> {}
