import { Effect } from "effect"
import { start } from "../../../src/sql/embedded/EmbeddedPostgres.ts"

/** Holds the database of a directory, given as argument, until standard input ends. */
const [directory = ""] = process.argv.slice(2)
const until = Effect.callback<undefined>((resume) => {
  process.stdin.once("end", () => resume(Effect.undefined)).resume()
})

await Effect.runPromise(
  Effect.scoped(
    Effect.gen(function* () {
      const began = performance.now()
      const { host } = yield* start(directory)
      console.log(JSON.stringify({ host, milliseconds: Math.round(performance.now() - began) }))
      yield* until
    })
  )
)
