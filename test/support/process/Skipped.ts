import { Data } from "effect"

/** The machine lacks what a check or a fault needs. */
export class Skipped extends Data.TaggedError("Skipped")<{ readonly why: string }> {}
