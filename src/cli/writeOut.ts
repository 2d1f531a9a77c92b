import { Effect } from "effect"

/** Writes to standard output and waits until it is taken. Answers false when nobody reads any more. */
export const writeOut = (text: string) =>
  Effect.callback<boolean>((resume) => {
    const { stdout } = process
    const settle = (error?: NodeJS.ErrnoException | null) => {
      stdout.off("error", settle)
      if (error === undefined || error === null) resume(Effect.succeed(true))
      else resume(error.code === "EPIPE" ? Effect.succeed(false) : Effect.die(error))
    }
    stdout.on("error", settle)
    stdout.write(text, settle)
  })
