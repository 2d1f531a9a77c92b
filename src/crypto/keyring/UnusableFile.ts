import { Data } from "effect"

/** A file with a secret cannot be used: says what is expected and found, never its content. */
export class UnusableFile extends Data.TaggedError("UnusableFile")<{ readonly message: string }> {
  /** What `node:fs` throws, by its code only. */
  static readonly to = (use: string) => (cause: unknown) =>
    cause instanceof UnusableFile
      ? cause
      : new UnusableFile({
          message: `expected a file that can be ${use}; found ${(cause as NodeJS.ErrnoException).code}`
        })
}
