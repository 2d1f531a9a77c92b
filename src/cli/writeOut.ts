import { Effect } from "effect"

const ignore = () => undefined

/** Writes to standard output and waits until it is written. Returns false once nobody reads any more. */
export const writeOut = (text: string) =>
  Effect.callback<boolean>((resume) => {
    const { stdout } = process
    stdout.on("error", ignore)
    stdout.write(text, (error?: NodeJS.ErrnoException | null) => {
      if (error === undefined || error === null) {
        stdout.off("error", ignore)
        return resume(Effect.succeed(true))
      }
      resume(error.code === "EPIPE" ? Effect.succeed(false) : Effect.die(error))
    })
  })
