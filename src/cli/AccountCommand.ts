import { Effect } from "effect"
import { Command } from "effect/cli"
import { name } from "./parse.ts"
import { print } from "./print.ts"
import { withAccounts } from "./withAccounts.ts"

const create = Command.make(
  "create",
  { name },
  Effect.fnUntraced(function* ({ name }) {
    yield* print(yield* withAccounts((accounts) => accounts.createAccount(name)))
  })
).pipe(Command.withDescription("Create an account with its default workspace and a management key, shown once"))

export const accountCommand = Command.make("account").pipe(
  Command.withDescription("Accounts"),
  Command.withSubcommands([create])
)
