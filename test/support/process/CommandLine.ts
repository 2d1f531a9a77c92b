import { assert } from "@effect/vitest"
import { Context, Effect, Layer } from "effect"
import type { SqlClient } from "effect/sql"
import { adminClient, migratedDatabase } from "../database/freshDatabase.ts"
import { runCommand } from "./runCommand.ts"
import type { Finished } from "./runNode.ts"

/** The one JSON object on standard output. */
export const onlyObject = ({ code, stderr, stdout }: Finished): Record<string, unknown> => {
  assert.deepStrictEqual({ code, stderr }, { code: 0, stderr: "" })
  assert.match(stdout, /^\{.*\}\n$/, "one line, and nothing around it")
  const parsed: unknown = JSON.parse(stdout)
  assert(typeof parsed === "object" && parsed !== null && !Array.isArray(parsed))
  return { ...parsed }
}

/** Creates an account with the command line, and answers with what that prints. */
export const createAccount = (settings: Record<string, string>) =>
  Effect.map(runCommand(["account", "create", "--name", "a test account", "--json"], settings), onlyObject)

/** The text in a member of an object. */
export const textIn = (object: Record<string, unknown>, member: string): string => {
  const value = object[member]
  assert(typeof value === "string", `${member} is a text`)
  return value
}

/** The command line on a database of its own. */
export class CommandLine extends Context.Service<
  CommandLine,
  {
    readonly databaseUrl: string
    readonly sql: SqlClient.SqlClient
    readonly run: (...args: ReadonlyArray<string>) => Effect.Effect<Finished>
    /** Runs with `--json` and answers with the one object that is printed. */
    readonly runJson: (...args: ReadonlyArray<string>) => Effect.Effect<Record<string, unknown>>
  }
>()("byok/test/CommandLine") {
  static readonly layer = Layer.effect(
    this,
    Effect.gen(function* () {
      const databaseUrl = yield* migratedDatabase
      const run = (...args: ReadonlyArray<string>) => runCommand(args, { DATABASE_URL: databaseUrl })
      return {
        databaseUrl,
        sql: yield* adminClient(databaseUrl),
        run,
        runJson: (...args) => Effect.map(run(...args, "--json"), onlyObject)
      }
    })
  )
}
