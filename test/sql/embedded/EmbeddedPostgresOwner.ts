import { Effect } from "effect"
import { start } from "../../../src/sql/embedded/EmbeddedPostgres.ts"

/** Uses the database of a directory as a service or as a command, both given as arguments, until standard input ends. */
const [directory = "", user] = process.argv.slice(2)
const until = Effect.callback<undefined>((resume) => {
  process.stdin.once("end", () => resume(Effect.undefined)).resume()
})

await Effect.runPromise(
  Effect.scoped(
    Effect.gen(function* () {
      const began = performance.now()
      const { host } = yield* start(directory, user === "service" ? "service" : "command")
      console.log(JSON.stringify({ host, milliseconds: Math.round(performance.now() - began) }))
      yield* until
    })
  )
)
