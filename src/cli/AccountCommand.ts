import { Effect } from "effect"
import { Command } from "effect/cli"
import { AccountId } from "../domain/Identifiers.ts"
import type { ErasureStep } from "../port/AccountRepository.ts"
import { Accounts } from "../service/Accounts.ts"
import * as CommandLayers from "../wiring/CommandLayers.ts"
import { operatorOn, withAccounts } from "./asOperator.ts"
import { argument, confirmation, name } from "./Arguments.ts"
import { print, printPages } from "./Output.ts"
import { makeProgress, type ProgressView } from "./Progress.ts"

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
      printPages(
        "accounts",
        (write) => accounts.listAccounts((page) => write(page.map((account) => ({ ...account })))),
        "There is no account: `byok account create --name N` creates one."
      )
    )
  })
).pipe(Command.withDescription("List all accounts"))

type Erased = Omit<ErasureStep, "done">

const erasureLine = ({ credentials, receipts }: Erased) => `deleted ${credentials} credentials, ${receipts} receipts`

const erasureView: ProgressView<Erased> = { line: erasureLine, part: () => undefined, longest: erasureLine }

const remove = Command.make(
  "delete",
  {
    id: argument("ID", "Id of the account", AccountId, "be a UUID"),
    yes: confirmation("the account is deleted for good, with its keys, workspaces and credentials")
  },
  Effect.fnUntraced(function* ({ id }) {
    const progress = yield* makeProgress(erasureView)
    const deleted = yield* operatorOn(
      Accounts,
      CommandLayers.erasure
    )((accounts) => Effect.ensuring(accounts.deleteAccount(id, progress.report), progress.end))
    yield* print(deleted, "the account is deleted")
  })
).pipe(Command.withDescription("Delete an account with everything in it, for good; run it again if it was interrupted"))

export const accountCommand = Command.make("account").pipe(
  Command.withDescription("Accounts"),
  Command.withSubcommands([create, list, remove])
)
