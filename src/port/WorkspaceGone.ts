import { Data } from "effect"

/** The workspace of a new credential is unknown, another account's or deleted; nothing was stored. */
export class WorkspaceGone extends Data.TaggedError("WorkspaceGone") {}
