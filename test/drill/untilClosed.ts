import { Effect } from "effect"

/** Takes one turn after the other until the scope closes, which waits for the last one. */
export const untilClosed = (turn: () => Promise<unknown>) =>
  Effect.asVoid(
    Effect.acquireRelease(
      Effect.sync(() => {
        let going = true
        const loop = async () => {
          while (going) await turn()
        }
        const ended = loop()
        return Effect.promise(() => ((going = false), ended))
      }),
      (end) => end
    )
  )
