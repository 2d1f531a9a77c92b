import { Data } from "effect"

/** Standard output could not be written. `done` is what the command did nevertheless, and how to reach or undo it. */
export class OutputFailed extends Data.TaggedError("OutputFailed")<{
  readonly code: string
  readonly done?: string | undefined
}> {
  override get message() {
    return `Standard output cannot be written (${this.code})${this.done === undefined ? "" : `: ${this.done}`}.`
  }
}
