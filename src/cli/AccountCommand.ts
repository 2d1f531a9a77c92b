import { Effect } from "effect"
import { Command } from "effect/cli"
import { name } from "./parse.ts"
import { print, printPages } from "./print.ts"
import { withAccounts } from "./withAccounts.ts"

const create = Command.make(
  "create",
  { name },
  Effect.fnUntraced(function* ({ name }) {
    const made = yield* withAccounts((accounts) => accounts.createAccount(name))
    const issue = `byok api-key issue --account ${made.account_id} --name N --management`
    yield* print(made, `account ${made.account_id} was created, and \`${issue}\` issues another key`)
  })
).pipe(Command.withDescription("Create an account with its default workspace and a management key, shown once"))

const list = Command.make(
  "list",
  {},
  Effect.fnUntraced(function* () {
    yield* withAccounts((accounts) =>
      printPages("accounts", (write) => accounts.listAccounts((page) => write(page.map((account) => ({ ...account })))))
    )
  })
).pipe(Command.withDescription("List all accounts"))

export const accountCommand = Command.make("account").pipe(
  Command.withDescription("Accounts"),
  Command.withSubcommands([create, list])
)
