import { Data } from "effect"

/** A file with a secret cannot be used: says what is expected and found, never its content. */
export class UnusableFile extends Data.TaggedError("UnusableFile")<{ readonly message: string }> {
  static readonly to = (use: string) => (cause: unknown) => {
    if (cause instanceof UnusableFile) return cause
    const code = cause instanceof Error && "code" in cause ? String(cause.code) : "unknown error"
    return new UnusableFile({ message: `expected a file that can be ${use}; found ${code}` })
  }
}
