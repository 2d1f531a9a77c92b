import { Data } from "effect"

/** An import cannot begin or go on. Says why, and never what is in its file. */
export class ImportRefused extends Data.TaggedError("ImportRefused")<{ readonly message: string }> {}
