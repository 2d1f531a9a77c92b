import { Data } from "effect"

/** A secret file that cannot be used. Says what was expected and found, never its content. */
export class UnusableFile extends Data.TaggedError("UnusableFile")<{ readonly message: string }> {
  /** Converts what `node:fs` throws, keeping only its code. */
  static readonly to = (use: string) => (cause: unknown) =>
    cause instanceof UnusableFile
      ? cause
      : new UnusableFile({
          message: `expected a file that can be ${use}; found ${(cause as NodeJS.ErrnoException).code}`
        })
}
